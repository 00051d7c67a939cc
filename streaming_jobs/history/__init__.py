"""The probe log as the jobs read it: a stream, its files, its rows checked and bundled, read again in order."""
