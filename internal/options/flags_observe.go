package options

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/internal/logs"
)

func logFlags() []Flag {
	return grouped(groupLog,
		Flag{Name: "log-verbose", Arg: "level", Default: "0", Help: "1 or more logs every step of loading and every request", set: verbose},
		Flag{Name: "log-info", Arg: argBool, Default: yes, Help: "Log information", set: boolean(func(o *Options) *bool { return &o.Log.Info })},
		Flag{Name: "log-warning", Arg: argBool, Default: yes, Help: "Log warnings", set: boolean(func(o *Options) *bool { return &o.Log.Warning })},
		Flag{Name: "log-error", Arg: argBool, Default: yes, Help: "Log errors", set: boolean(func(o *Options) *bool { return &o.Log.Error })},
		Flag{
			Name: "log-format", Arg: "format", Default: logs.Default, Help: "default is Triton's format, ISO8601 has full dates, json has a JSON object per line",
			set: exactly(func(o *Options) *string { return &o.Log.Format }, "log-format", logs.Formats()...),
		},
		Flag{Name: "log-file", Arg: argFile, Help: "File of the log, instead of the standard streams", set: text(func(o *Options) *string { return &o.Log.File })},
	)
}

// verbose reads a level, or a boolean for 1 and 0.
func verbose(o *Options, value string) error {
	switch strings.ToLower(value) {
	case yes:
		value = "1"
	case no:
		value = "0"
	}
	n, err := parseInt(value, 0, maxInt)
	o.Log.Verbose = uint32(n) //nolint:gosec // within its range
	return err
}

// exactly returns the setter of one of the words, with regard to case.
func exactly(field func(*Options) *string, flag string, words ...string) setter {
	return func(o *Options, value string) error {
		if !slices.Contains(words, value) {
			return fmt.Errorf("invalid argument for --%s: '%s', expected one of: %s", flag, value, strings.Join(words, ", "))
		}
		*field(o) = value
		return nil
	}
}

func traceFlags() []Flag {
	const instead = "--trace-config "
	return grouped(groupTrace,
		Flag{
			Name: "trace-config", Arg: "mode,key=value", Many: true,
			Help: "Settings of tracing: level=OFF|TIMESTAMPS|TENSORS, rate=N, count=N, mode=triton|opentelemetry, triton,file=FILE, triton,log-frequency=N, opentelemetry,url=URL, opentelemetry,protocol=http/protobuf|grpc, opentelemetry,resource=KEY=VALUE, opentelemetry,bsp_max_queue_size=N, opentelemetry,bsp_schedule_delay=MS, opentelemetry,bsp_max_export_batch_size=N, opentelemetry,detail=true|false",
			set:  traceConfig,
		},
		Flag{Name: "trace-file", Arg: argFile, Instead: instead + "triton,file=FILE", Help: "File of the traces", set: text(func(o *Options) *string { return &o.Trace.File })},
		Flag{Name: "trace-level", Arg: "level", Many: true, Instead: instead + "level=LEVEL", Help: "OFF, TIMESTAMPS or TENSORS", set: traceLevel},
		Flag{Name: "trace-rate", Arg: argNumber, Default: "1000", Instead: instead + "rate=N", Help: "Trace one of this number of requests", set: traceRate},
		Flag{Name: "trace-count", Arg: argNumber, Default: "-1", Instead: instead + "count=N", Help: "Number of requests to trace, -1 for no end", set: traceCount},
		Flag{Name: "trace-log-frequency", Arg: argNumber, Default: "0", Instead: instead + "triton,log-frequency=N", Help: "Number of traces in each file, 0 for a single file", set: traceFrequency},
	)
}

func traceRate(o *Options, value string) error {
	return integer(func(o *Options) *int { return &o.Trace.Rate }, 0, maxInt)(o, value)
}

func traceCount(o *Options, value string) error {
	return integer(func(o *Options) *int { return &o.Trace.Count }, traceForever, maxInt)(o, value)
}

func traceFrequency(o *Options, value string) error {
	return integer(func(o *Options) *int { return &o.Trace.LogFrequency }, 0, maxInt)(o, value)
}

func traceLevel(o *Options, value string) error {
	var level string
	switch strings.ToLower(value) {
	case "false", "off":
		level = traceOff
	case "true", "on", "min", "max", "timestamps":
		level = "TIMESTAMPS"
	case "tensors":
		level = "TENSORS"
	default:
		return fmt.Errorf("invalid value for trace level option: %s", value)
	}
	if !slices.Contains(o.Trace.Levels, level) {
		o.Trace.Levels = append(o.Trace.Levels, level)
	}
	return nil
}

// traceConfig reads mode,key=value, or key=value for both modes.
func traceConfig(o *Options, value string) error {
	mode, setting, ok := strings.Cut(value, ",")
	if !ok || strings.Contains(mode, "=") {
		mode, setting = "", value
	}
	key, v, ok2 := strings.Cut(setting, "=")
	switch {
	case ok && mode == "" && strings.HasPrefix(value, ","):
		return fmt.Errorf("No trace mode specified. --trace-config option format is <trace mode>,<setting>=<value> or <setting>=<value>. Got %s", value) //nolint:staticcheck // Triton's words
	case !ok2 || key == "" || v == "":
		return fmt.Errorf("--trace-config option format is '<trace mode>,<setting>=<value>'. Got %s", value)
	}
	switch strings.ToLower(mode) {
	case "":
		return traceGlobal(o, key, v)
	case traceTriton:
		return traceFile(o, key, v)
	case traceOpenTelemetry:
		o.Trace.OpenTelemetry = append(o.Trace.OpenTelemetry, [2]string{key, v})
		return nil
	}
	return traceMode(o, mode)
}

func traceGlobal(o *Options, key, value string) error {
	switch key {
	case "rate":
		return traceRate(o, value)
	case "level":
		return traceLevel(o, value)
	case "mode":
		return traceMode(o, value)
	case "count":
		return traceCount(o, value)
	}
	return fmt.Errorf("unknown setting '%s' of --trace-config, expected one of: count, level, mode, rate", key)
}

func traceFile(o *Options, key, value string) error {
	switch key {
	case "file":
		o.Trace.File = value
		return nil
	case "log-frequency":
		return traceFrequency(o, value)
	}
	return fmt.Errorf("unknown setting 'triton,%s' of --trace-config, expected one of: triton,file, triton,log-frequency", key)
}

func traceMode(o *Options, value string) error {
	switch strings.ToLower(value) {
	case traceTriton, traceOpenTelemetry:
		o.Trace.Mode = strings.ToLower(value)
		return nil
	}
	return fmt.Errorf(`invalid value for trace mode option: %s. Available options are "triton" and "opentelemetry"`, value)
}
