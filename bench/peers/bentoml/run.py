"""Hands over to BentoML's own command, as its documentation starts a service in production."""

import os
import sys

import asked

service = "service:Text" if asked.SCENARIO == "text" else "service:Identity"
os.environ["BENTOML_DO_NOT_TRACK"] = "True"  # no usage report to the net
cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
os.environ["BENTOML_HOME"] = os.path.join(cache, "tutti", "bentoml")  # instead of a folder in the home
os.execv(sys.executable, [sys.executable, "-m", "bentoml", "serve", service, "--host", asked.HOST, "--port", str(asked.HTTP)])
