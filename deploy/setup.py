"""What `make setup` does after the packages are installed: Java and jars. Filled in by deploy/jars.py and deploy/java.py."""
