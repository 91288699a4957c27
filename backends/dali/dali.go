// Package dali serves pipelines of NVIDIA DALI with the conventions of Triton's backend of that name: serialized ones (model.dali), and
// ones written in Python (dali.py with @autoserialize).
//
//	dali.go    the factory, the settings, and the environment with DALI
//	model.go   loading: which file is served, and errors
//	script/    what runs a pipeline, in Python: model.py, with tutti_dali_graph.py, which reads serialized pipelines, and
//	           tutti_dali_config.py, which completes and checks configurations
//
// DALI throws C++ exceptions and may end its process, so it never runs in the server: each instance has a process. The backend is a
// Python model of this project. The backend that runs Python models starts and watches the processes, and passes tensors in shared memory.
// For example, its limits of memory, its restarts and its sandbox hold for pipelines too.
package dali

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/diskfull"
	"github.com/tutti-server/tutti/internal/runtimes"
	"github.com/tutti-server/tutti/internal/tempfolder"
)

// name is the backend's name, and that of its runtime.
const name = "dali"

// Keys of --backend-config=dali,KEY=VALUE.
const (
	keyRuntime = "python-runtime"
	keyPlugins = "plugin_libs"
	keyRelease = "release_after_unload"
)

// Settings of the Python backend that name an interpreter. The others hold for the processes of pipelines too.
var interpreterKeys = [...]string{"python-runtime", "python-path"}

// aboutTime is the most time that an interpreter may take to name its version of DALI.
const aboutTime = time.Minute

//go:embed script/*.py
var scripts embed.FS

// folderPrefix begins the names of temporary folders with the scripts.
const folderPrefix = "tutti-dali-"

// NewFactory returns the backend dali. host is the backend that runs Python models.
func NewFactory(host backends.Factory) backends.Factory {
	return backends.Factory{
		Name:        name,
		DefaultFile: serializedFile,
		Native:      true,
		ConfigKeys:  []string{keyPlugins, keyRuntime, keyRelease},
		Params:      []string{threadsParam, splitParam},
		Guide:       guide,
		New:         func(o backends.Options) (backends.Backend, error) { return open(host, o) },
		Auto:        func(map[string]string) config.Auto { return config.AutoGPU }, // as Triton's
	}
}

var guide = backends.Guide{
	Doc: "Serves pipelines of NVIDIA DALI, for example one that decodes, resizes and normalises JPEG images: a serialized pipeline " +
		"(`model.dali`), or `dali.py` with one function that is decorated with `@autoserialize`. As in Triton, `model.dali` is tried first, and " +
		"inputs, outputs and `max_batch_size` that the configuration leaves out are taken from the pipeline. An input is an operator `fn.external_source` " +
		"with its name. Outputs have the order of the pipeline; the configuration may rename them. Samples of different shapes share a batch. Each " +
		"instance has a process, in the environment that `tutti runtime fetch dali` makes, on linux/amd64 with Python 3.10 to 3.14. The settings of the backend `python` (its sandbox, its " +
		"limits of time and of shared memory) hold for these processes.",
	Limits: "An operator on a GPU (`device=\"gpu\"` or `\"mixed\"`) needs an instance of `KIND_GPU`; inputs and outputs are on the host in either " +
		"case. Pipelines on GPUs were not tried: no GPU was at hand. The samples of one request must have outputs of one shape, since a response is a tensor. " +
		"Decoupled models (`fn.experimental.inputs.video`), and DALI's data types without a counterpart in the protocol, are refused by name. A request " +
		"that DALI refuses, for example an undecodable image, fails alone: the others of its batch run again without it.",
	Params: []backends.Param{
		{Key: threadsParam, Doc: "CPU threads of the pipeline; by default those of its definition"},
		{Key: splitParam, Doc: "Names of outputs, separated by colons. Their samples are joined along their first dimension. For example, sequences become frames"},
	},
}

// backend is the open backend. It is safe for concurrent use.
type backend struct {
	host    backends.Backend
	folder  *tempfolder.Folder // with the scripts
	about   string
	plugins []string
}

// open finds the environment with DALI, writes the scripts, and opens the backend of Python models with that environment.
func open(host backends.Factory, o backends.Options) (_ backends.Backend, err error) {
	if v := o.Config[keyRelease]; v != "" && v != "true" && v != "false" {
		return nil, status.Errorf(status.InvalidArg, "unexpected value '%s' of %s setting '%s': expected true or false", v, name, keyRelease)
	}
	python, err := runtimes.Find(name, o.Config[keyRuntime])
	if err != nil {
		return nil, err
	}
	version, err := versionOf(python)
	if err != nil {
		return nil, err
	}
	b := &backend{about: "DALI " + version + ", " + python}
	if v := o.Config[keyPlugins]; v != "" {
		b.plugins = strings.Split(v, ":")
	}
	if b.folder, err = writeScripts(os.TempDir()); err != nil {
		err = diskfull.Explain(err, os.TempDir(), "start the server with TMPDIR at another disk")
		return nil, &status.Error{
			Code: status.Unavailable, Reason: status.StorageUnavailable, Msg: "cannot write the scripts of DALI pipelines: " + err.Error(),
			Err: err, RetryAfter: status.RetryAfter(err),
		}
	}
	o.Config = maps.Clone(o.Others[host.Name])
	if o.Config == nil {
		o.Config = map[string]string{}
	}
	for _, key := range interpreterKeys {
		delete(o.Config, key)
	}
	o.Config[keyRuntime] = python
	if b.host, err = host.New(o); err != nil {
		return nil, errors.Join(err, b.folder.Remove())
	}
	return b, nil
}

// aboutCode prints the version of DALI in the interpreter's environment. It does not import DALI, which would take seconds.
const aboutCode = `import importlib.metadata as m
print(*{d.version for d in m.distributions() if (d.metadata["Name"] or "").lower().replace("_", "-").startswith("nvidia-dali")})`

// versionOf returns the version of DALI in an interpreter's environment.
func versionOf(python string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), aboutTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, python, "-c", aboutCode).Output() //nolint:gosec // the interpreter is a setting
	version := strings.TrimSpace(string(out))
	switch {
	case err != nil:
		return "", status.Reasonf(status.RuntimeMissing, "'%s' does not run as the Python of DALI (%w): run 'tutti runtime fetch %s', or correct '--backend-config=%s,%s'",
			python, err, name, name, keyRuntime)
	case version == "":
		return "", status.Reasonf(status.RuntimeMissing, "'%s' has no package nvidia-dali: run 'tutti runtime fetch %s', or name a Python that has it by "+
			"'--backend-config=%s,%s=PATH' or TUTTI_DALI", python, name, name, keyRuntime)
	}
	return version, nil
}

// writeScripts writes the scripts to a new folder in dir, and removes those that killed servers left.
func writeScripts(dir string) (*tempfolder.Folder, error) {
	tempfolder.RemoveStale(dir, folderPrefix, nil)
	f, err := tempfolder.Make(dir, folderPrefix)
	if err != nil {
		return nil, err
	}
	from, err := fs.Sub(scripts, "script")
	if err == nil {
		err = os.CopyFS(f.Path(), from)
	}
	if err != nil {
		return nil, errors.Join(err, f.Remove())
	}
	return f, nil
}

// Describe returns the version of DALI and the path of its interpreter.
func (b *backend) Describe() string { return b.about }

// Check returns an error when the interpreter or numpy is missing.
func (b *backend) Check() error {
	if c, ok := b.host.(backends.Checker); ok {
		return c.Check()
	}
	return nil
}

// Close stops the processes and removes the scripts.
func (b *backend) Close() error { return errors.Join(b.host.Close(), b.folder.Remove()) }

// script returns the path of the script that runs pipelines.
func (b *backend) script() string { return filepath.Join(b.folder.Path(), scriptFile) }

var (
	_ backends.Describer = (*backend)(nil)
	_ backends.Checker   = (*backend)(nil)
)

// failedLoad begins the error of a model that cannot be loaded.
func failedLoad(s *backends.Settings) string {
	return fmt.Sprintf("failed to load '%s' version %d", s.Model, s.Version)
}
