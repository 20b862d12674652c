"""The program of a worker process. It sets the path of modules before it imports anything of hmx.

Python runs it with `-P`: until then the current folder, which may contain a `json.py`, is not on the path.
"""

import json
import os
import sys

if __name__ == "__main__":
    places, here, last = json.loads(sys.argv.pop())
    # Where a package is installed from the current folder, or PYTHONPATH names it, Python has it on the path here too.
    installed = any(os.path.realpath(place) == here for place in sys.path)
    sys.path[:] = places + [here] * (last or installed)

    from hmx.simulators.worker import main

    main(*map(int, sys.argv[1:3]))
