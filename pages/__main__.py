"""A static site that needs no installation.  python -m pages FOLDER"""
import sys

from engine.loading import command_line
from pages.files import write_folder
from pages.site import pages


def main(folder, repository="", address=""):
    """Write the site to a folder that a web server can serve: python -m http.server -d FOLDER.

    Args:
        folder: where to write; it may exist, and other files in it stay
        repository: the web address of the code, for a link to it: https://github.com/us/it
        address: the web address of the site, for the preview of a link to it: https://us.github.io/it
    """
    write_folder(folder, pages(repository.rstrip("/"), address.rstrip("/")))
    print(f"python -m http.server -d {folder}    serves it at http://localhost:8000")


if __name__ == "__main__":
    sys.exit(command_line.run(main))
