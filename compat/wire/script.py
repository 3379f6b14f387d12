"""The scenes: what is asked, in which order. A step's name and version are its identity in the recorded file."""
import scenes_admin
import scenes_configs
import scenes_data
import scenes_metadata
import scenes_misc

SCENES = scenes_metadata.SCENES + scenes_admin.SCENES + scenes_configs.SCENES + scenes_data.SCENES + scenes_misc.SCENES
