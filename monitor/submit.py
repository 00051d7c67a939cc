"""The `offsetwatch` command as the main file of a site's own `spark-submit`, which wants a file and no command:

    spark-submit --master URL "$(python -c 'import monitor.submit as it; print(it.__file__)')" monitor --config FILE

Java's process is then the parent of ours and not its child; `streaming_jobs.session` finds it.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # this file's folder, whose modules are `monitor`'s and have short names
    from monitor.cli import main

    main()
