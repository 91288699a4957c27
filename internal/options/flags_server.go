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
		Flag{Name: flagConfig, Arg: argFile, Own: true, Help: "YAML file whose keys are names of options; a list repeats an option"},
		Flag{Name: "id", Arg: "name", Default: tritonID, Help: "Name of the server in its metadata", set: text(func(o *Options) *string { return &o.ID })},
		Flag{
			Name: "exit-timeout-secs", Arg: argSeconds, Default: "30", Help: "Time limit for stopping: requests in flight are cut off after it",
			set: duration(func(o *Options) *time.Duration { return &o.ExitTimeout }, time.Second, 0),
		},
		Flag{
			Name: "exit-connection-secs", Arg: argSeconds, Default: "5", Own: true,
			Help: "When stopping, time for which requests are still served while clients keep HTTP connections open, at most half of --exit-timeout-secs",
			set:  duration(func(o *Options) *time.Duration { return &o.ExitConnections }, time.Second, 0),
		},
		Flag{
			Name: "exit-on-error", Arg: argBool, Default: yes, Help: "Exit if a model cannot be loaded at the start",
			set: boolean(func(o *Options) *bool { return &o.ExitOnError }),
		},
		Flag{
			Name: "strict-readiness", Arg: argBool, Default: yes, Help: "Be ready only if every model is ready; when false, as soon as the server accepts requests",
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
			Help: "none loads every model at the start; poll also loads and unloads models as the repositories change; explicit loads the models of --load-model and those that clients request",
			set:  choice(func(o *Options) *string { return &o.ControlMode }, "model-control-mode", ModeNone, ModePoll, ModeExplicit),
		},
		Flag{
			Name: "repository-poll-secs", Arg: argSeconds, Default: "15", Help: "Time between two scans of the repositories in mode poll",
			set: duration(func(o *Options) *time.Duration { return &o.PollInterval }, time.Second, 0),
		},
		Flag{
			Name: "load-model", Arg: "model", Many: true, Help: "Model to load at the start in mode explicit; * for all",
			set: texts(func(o *Options) *[]string { return &o.LoadModels }),
		},
		Flag{
			Name: "model-config-name", Arg: "name", Help: "Use configs/NAME.pbtxt in the folder of a model, if it exists, in place of config.pbtxt",
			set: configName,
		},
		Flag{
			Name: "model-load-thread-count", Arg: argNumber, Default: "4", Help: "Models that load at a time",
			set: integer(func(o *Options) *int { return &o.LoadThreads }, 1, maxInt),
		},
		Flag{
			Name: "model-load-retry-count", Arg: argNumber, Default: "0", Help: "Times that a failed load is repeated",
			set: integer(func(o *Options) *int { return &o.LoadRetries }, 0, maxInt),
		},
		Flag{Name: flagNoComplete, Help: "Use every configuration as it is written; complete none from the model", set: noComplete},
		Flag{
			Name: "strict-ensemble-config", Arg: argBool, Default: no, Own: true, Help: "Read ensembles as Triton does, without inferring anything from their steps",
			set: boolean(func(o *Options) *bool { return &o.StrictEnsembleConfig }),
		},
		Flag{
			Name: "strict-parameters", Arg: argBool, Default: no, Own: true,
			Help: "Refuse unknown parameters of models, backends and caches, instead of logging warnings",
			set:  boolean(func(o *Options) *bool { return &o.StrictParameters }),
		},
		Flag{
			Name: "gpu-fallback", Arg: "where", Default: FallbackNone, Own: true,
			Help: "cpu runs models for missing GPUs on the CPU, with a warning for each; none refuses them",
			set:  choice(func(o *Options) *string { return &o.GPUFallback }, "gpu-fallback", FallbackNone, FallbackCPU),
		},
		Flag{Name: "strict-model-config", Arg: argBool, Default: no, Instead: "--" + flagNoComplete, Help: "true is the same as --" + flagNoComplete, set: noComplete},
		Flag{
			Name: "model-cache-directory", Arg: argFolder, Own: true, Help: "Folder for models fetched from buckets; by default in the user's cache",
			set: text(func(o *Options) *string { return &o.ModelCache }),
		},
		Flag{
			Name: "model-namespacing", Arg: argBool, Default: no, Help: "Allow several repositories to have models of one name; an ensemble searches its own repository first",
			set: boolean(func(o *Options) *bool { return &o.Namespacing }),
		},
	)
}

// noComplete disables auto-completion. A false value of one flag does not undo another flag.
func noComplete(o *Options, value string) error {
	off, err := parseBool(value)
	o.DisableAutoComplete = o.DisableAutoComplete || off
	return err
}

// configName refuses names that lead out of the folder configs.
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
		Help: "Setting of a backend; of every backend without a backend's name",
		set:  func(o *Options, value string) error { return o.BackendConfig.Set(value) },
	}, Flag{
		Name: "strict-python-outputs", Arg: argBool, Default: no, Own: true,
		Help: "Refuse responses of Python models whose data types, shapes or rows differ from the configuration; when false, they are used with a warning",
		set:  strictPython,
	})
}

// strictPython sets the setting of the python backend with the same meaning.
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

// grouped sets the group of flags.
func grouped(group string, list ...Flag) []Flag {
	for i := range list {
		list[i].Group = group
	}
	return list
}
