package options

import (
	"fmt"
	"strings"
	"time"
)

const (
	argBool    = "bool"
	argNumber  = "number"
	argPort    = "port"
	argAddress = "address"
	argFile    = "file"
	argFolder  = "folder"
	argMillis  = "milliseconds"
	argSeconds = "seconds"
	argBytes   = "bytes"
	argPattern = "pattern"

	yes, no = "true", "false"

	flagConfig, flagHelp = "config", "help"
	flagRepository       = "model-repository"
	flagNoComplete       = "disable-auto-complete-config"
	flagVertex           = "allow-vertex-ai"
)

func serverFlags() []Flag {
	return grouped(groupServer,
		Flag{Name: flagHelp, Help: "Print this text"},
		Flag{Name: flagConfig, Arg: argFile, Own: true, Help: "YAML file whose keys are the names of options; a list stands for an option given several times"},
		Flag{Name: "id", Arg: "name", Default: tritonID, Help: "Name of the server in its metadata", set: text(func(o *Options) *string { return &o.ID })},
		Flag{
			Name: "exit-timeout-secs", Arg: argSeconds, Default: "30", Help: "Time that requests under way have at the end",
			set: duration(func(o *Options) *time.Duration { return &o.ExitTimeout }, time.Second, 0),
		},
		Flag{
			Name: "exit-connection-secs", Arg: argSeconds, Default: "5", Own: true,
			Help: "Time that requests are served as before at the end while clients keep HTTP connections open, at most half of --exit-timeout-secs",
			set:  duration(func(o *Options) *time.Duration { return &o.ExitConnections }, time.Second, 0),
		},
		Flag{
			Name: "exit-on-error", Arg: argBool, Default: yes, Help: "End when a model cannot be loaded at start",
			set: boolean(func(o *Options) *bool { return &o.ExitOnError }),
		},
		Flag{
			Name: "strict-readiness", Arg: argBool, Default: yes, Help: "Be ready only when every model is; when false, as soon as requests are answered",
			set: boolean(func(o *Options) *bool { return &o.StrictReadiness }),
		},
	)
}

func modelFlags() []Flag {
	repositories := texts(func(o *Options) *[]string { return &o.Repositories })
	return grouped(groupModels,
		Flag{Name: flagRepository, Arg: argFolder, Many: true, Help: "Folder that holds models", set: repositories},
		Flag{Name: "model-store", Arg: argFolder, Many: true, alias: flagRepository, Help: "Another name of --model-repository", set: repositories},
		Flag{
			Name: "model-control-mode", Arg: "mode", Default: ModeNone,
			Help: "none loads every model at start, poll also follows what changes in the repositories, explicit loads those of --load-model and what clients ask for",
			set:  choice(func(o *Options) *string { return &o.ControlMode }, "model-control-mode", ModeNone, ModePoll, ModeExplicit),
		},
		Flag{
			Name: "repository-poll-secs", Arg: argSeconds, Default: "15", Help: "Time between two looks at the repositories in mode poll",
			set: duration(func(o *Options) *time.Duration { return &o.PollInterval }, time.Second, 0),
		},
		Flag{
			Name: "load-model", Arg: "model", Many: true, Help: "Model to load at start in mode explicit; * stands for all",
			set: texts(func(o *Options) *[]string { return &o.LoadModels }),
		},
		Flag{
			Name: "model-config-name", Arg: "name", Help: "Configure models by configs/NAME.pbtxt of their folder where there is one",
			set: configName,
		},
		Flag{
			Name: "model-load-thread-count", Arg: argNumber, Default: "4", Help: "Models that load at a time",
			set: integer(func(o *Options) *int { return &o.LoadThreads }, 1, maxInt),
		},
		Flag{
			Name: "model-load-retry-count", Arg: argNumber, Default: "0", Help: "Times that a load which failed is tried again",
			set: integer(func(o *Options) *int { return &o.LoadRetries }, 0, maxInt),
		},
		Flag{Name: flagNoComplete, Help: "Take every configuration as it is written, and complete none from the model", set: noComplete},
		Flag{
			Name: "strict-ensemble-config", Arg: argBool, Default: no, Own: true, Help: "Read ensembles as Triton does, which infers nothing from their steps",
			set: boolean(func(o *Options) *bool { return &o.StrictEnsembleConfig }),
		},
		Flag{
			Name: "strict-parameters", Arg: argBool, Default: no, Own: true,
			Help: "Refuse parameters of models, backends and caches that nobody reads, which otherwise are warned about",
			set:  boolean(func(o *Options) *bool { return &o.StrictParameters }),
		},
		Flag{
			Name: "gpu-fallback", Arg: "where", Default: FallbackNone, Own: true,
			Help: "cpu runs models on the CPU that ask for GPUs which are not there, with a warning for each; none refuses them",
			set:  choice(func(o *Options) *string { return &o.GPUFallback }, "gpu-fallback", FallbackNone, FallbackCPU),
		},
		Flag{Name: "strict-model-config", Arg: argBool, Default: no, Instead: "--" + flagNoComplete, Help: "When true, as --" + flagNoComplete, set: noComplete},
		Flag{
			Name: "model-cache-directory", Arg: argFolder, Own: true, Help: "Where models that are fetched from buckets are kept; by default in the user's cache",
			set: text(func(o *Options) *string { return &o.ModelCache }),
		},
		Flag{
			Name: "model-namespacing", Arg: argBool, Default: no, Help: "Let several repositories hold models of one name; an ensemble looks for its models in its own repository first",
			set: boolean(func(o *Options) *bool { return &o.Namespacing }),
		},
	)
}

// noComplete is set by any of its flags, whatever another one says.
func noComplete(o *Options, value string) error {
	off, err := parseBool(value)
	o.DisableAutoComplete = o.DisableAutoComplete || off
	return err
}

// configName keeps the name of a configuration inside its folder.
func configName(o *Options, value string) error {
	if value == "." || value == ".." || strings.ContainsAny(value, `/\\`) {
		return fmt.Errorf("invalid argument for --model-config-name: '%s', expected a name without a folder", value)
	}
	o.ModelConfigName = value
	return nil
}

func backendFlags() []Flag {
	return grouped(groupBackends, Flag{
		Name: "backend-config", Arg: "backend,key=value", Many: true,
		Help: "Setting of a backend; of all when the backend's name is left out",
		set:  func(o *Options, value string) error { return o.BackendConfig.Set(value) },
	}, Flag{
		Name: "strict-python-outputs", Arg: argBool, Default: no, Own: true,
		Help: "Refuse responses of Python models whose data types, shapes or rows differ from the configuration; when false they are passed on with a warning",
		set:  strictPython,
	})
}

// strictPython is the python backend's setting of the same meaning.
func strictPython(o *Options, value string) error {
	on, err := parseBool(value)
	switch {
	case err != nil:
		return err
	case on:
		return o.BackendConfig.Set("python,strict-outputs=true")
	}
	delete(o.BackendConfig["python"], "strict-outputs")
	return nil
}

// grouped puts flags below a heading.
func grouped(group string, list ...Flag) []Flag {
	for i := range list {
		list[i].Group = group
	}
	return list
}
