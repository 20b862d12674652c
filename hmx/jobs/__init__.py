"""Every command as a function: typed result out, nothing printed."""
