"""The archive of WISDM 2019, with two lines for each user, of our own making."""

import io
import zipfile

from fedldp_reproduction.datasets.wisdm import V2019

LINE = "{user},{activity},252207666810782,{x},8.79,1.05;\n"


def recordings(folder="wisdm-dataset/raw/", users=None, changed=None):
    """Return a ZIP archive with two lines for each user, of which one is of another activity."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for user in (*V2019.users, 1616) if users is None else users:
            text = LINE.format(user=user, activity="A", x=user / 1000)
            text += LINE.format(user=user, activity="G", x=0) + "\n"
            name = f"{folder}watch/accel/data_{user}_accel_watch.txt"
            archive.writestr(name, (changed or {}).get(user, text))
            archive.writestr(f"{folder}phone/accel/data_{user}_accel_phone.txt", "x")
    return made.getvalue()


def nested(inner):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("wisdm-dataset.zip", inner)
    return made.getvalue()
