package tutti

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tutti/server/httpapi"
)

// Options is what a server can be told. The flags of serve have the names and the
// defaults that tritonserver gives them.
type Options struct {
	// ID is the server's name in its metadata.
	ID string
	// Repositories are folders that hold models.
	Repositories []string
	// Models, when not nil, names those to load; nil loads all.
	Models []string
	// ExitOnError ends a server that cannot load every model.
	ExitOnError bool
	// StrictReadiness makes the server ready only when every model is.
	StrictReadiness bool
	// BackendConfig holds settings of backends, by backend name.
	BackendConfig map[string]map[string]string
	// ExitTimeout bounds the orderly end.
	ExitTimeout         time.Duration
	HTTP, GRPC, Metrics Endpoint
	// MaxInput bounds an HTTP request in bytes.
	MaxInput int64
	// Verbose makes the log tell more from 1 on.
	Verbose int
}

// Endpoint is where a protocol is served.
type Endpoint struct {
	Enabled bool
	Address string
	// Port 0 takes a free one.
	Port int
}

const (
	defaultHTTPPort    = 8000
	defaultGRPCPort    = 8001
	defaultMetricsPort = 8002
	defaultAddress     = "0.0.0.0"
	defaultExitTimeout = 30 * time.Second
)

// DefaultOptions returns the defaults of serve, which lack a repository only.
func DefaultOptions() Options {
	return Options{
		ID:              "tutti",
		ExitOnError:     true,
		StrictReadiness: true,
		BackendConfig:   map[string]map[string]string{},
		ExitTimeout:     defaultExitTimeout,
		HTTP:            Endpoint{true, defaultAddress, defaultHTTPPort},
		GRPC:            Endpoint{true, defaultAddress, defaultGRPCPort},
		Metrics:         Endpoint{Enabled: true, Port: defaultMetricsPort},
		MaxInput:        httpapi.DefaultMaxInput,
	}
}

// control is how models are chosen: the flags that Options.Models is made of.
type control struct {
	mode string
	load []string
}

// parseServe reads the command line of serve.
func (p *program) parseServe(args []string) (Options, error) {
	o := DefaultOptions()
	c := control{mode: "none"}
	fs := p.flags("serve", "--model-repository DIR ...")
	o.register(fs, &c)
	rest, err := parse(fs, args)
	switch {
	case err != nil:
		return o, err
	case len(rest) > 0:
		return o, usagef("unexpected argument '%s'", rest[0])
	case o.MaxInput <= 0:
		return o, usagef("--http-max-input-size must be greater than 0, got %d", o.MaxInput)
	}
	if o.Models, err = c.models(); err != nil {
		return o, err
	}
	if o.Metrics.Address == "" {
		o.Metrics.Address = o.HTTP.Address
	}
	return o, nil
}

func (o *Options) register(fs *flag.FlagSet, c *control) {
	fs.StringVar(&o.ID, "id", o.ID, "`name` of the server in its metadata")
	fs.Var((*list)(&o.Repositories), "model-repository", "`folder` that holds models; may be repeated")
	fs.Var((*list)(&o.Repositories), "model-store", "`folder`, another name of --model-repository")
	fs.StringVar(&c.mode, "model-control-mode", c.mode, "`mode`: none loads every model, explicit those of --load-model")
	fs.Var((*list)(&c.load), "load-model", "`model` to load when the control mode is explicit; * for all; may be repeated")
	fs.Var((*boolean)(&o.ExitOnError), "exit-on-error", "`bool`: end when a model cannot be loaded")
	fs.Var((*boolean)(&o.StrictReadiness), "strict-readiness", "`bool`: ready only when every model is")
	fs.Var(backendConfig(o.BackendConfig), "backend-config", "`backend,key=value`: a setting of a backend; may be repeated")
	fs.Var((*seconds)(&o.ExitTimeout), "exit-timeout-secs", "`seconds` that requests under way have at the end")
	fs.Int64Var(&o.MaxInput, "http-max-input-size", o.MaxInput, "largest HTTP request in `bytes`")
	fs.IntVar(&o.Verbose, "log-verbose", o.Verbose, "`level`: from 1 on, log every step of loading")
	o.HTTP.register(fs, "http", "HTTP")
	o.GRPC.register(fs, "grpc", "gRPC")
	o.Metrics.register(fs, "metrics", "metrics")
}

func (e *Endpoint) register(fs *flag.FlagSet, name, title string) {
	fs.Var((*boolean)(&e.Enabled), "allow-"+name, "`bool`: serve "+title)
	fs.StringVar(&e.Address, name+"-address", e.Address, "`address` that "+title+" listens on")
	fs.Var((*port)(&e.Port), name+"-port", "`port` that "+title+" listens on; 0 for a free one")
}

// models returns Options.Models, in Triton's words when the flags disagree.
func (c *control) models() ([]string, error) {
	switch {
	case c.mode == "poll":
		return nil, usagef("unsupported: --model-control-mode=poll, expected none or explicit")
	case c.mode != "none" && c.mode != "explicit":
		return nil, usagef("invalid argument for --model-control-mode: '%s', expected none or explicit", c.mode)
	case c.mode == "none" && len(c.load) > 0:
		return nil, usagef("Use of '--load-model' requires setting '--model-control-mode=explicit' as well.")
	case c.mode == "none", len(c.load) == 1 && c.load[0] == "*":
		return nil, nil
	case slices.Contains(c.load, "*"):
		return nil, usagef("--load-model * must be the only one")
	}
	return append([]string{}, c.load...), nil
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

// Set adds a value.
func (l *list) Set(s string) error {
	if s == "" {
		return errors.New("expected a value, got none")
	}
	*l = append(*l, s)
	return nil
}

// boolean is a flag that takes a value, as tritonserver's do: --flag=false, --flag false.
type boolean bool

func (b *boolean) String() string { return strconv.FormatBool(bool(*b)) }

// Set takes true, false, 1 and 0.
func (b *boolean) Set(s string) error {
	switch strings.ToLower(s) {
	case "true", "1":
		*b = true
	case "false", "0":
		*b = false
	default:
		return fmt.Errorf("invalid value for bool option: %s", s)
	}
	return nil
}

// seconds is a duration in whole seconds.
type seconds time.Duration

func (d *seconds) String() string { return strconv.Itoa(int(time.Duration(*d) / time.Second)) }

// Set takes a number that is not negative.
func (d *seconds) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return errors.New("expected a number of seconds")
	}
	*d = seconds(time.Duration(n) * time.Second)
	return nil
}

// port is a TCP port.
type port int

func (p *port) String() string { return strconv.Itoa(int(*p)) }

// Set takes 0 to 65535.
func (p *port) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return errors.New("expected a port from 0 to 65535")
	}
	*p = port(n)
	return nil
}

// backendConfig is a setting of a backend.
type backendConfig map[string]map[string]string

func (backendConfig) String() string { return "" }

// Set takes backend,key=value.
func (c backendConfig) Set(s string) error {
	name, setting, ok := strings.Cut(s, ",")
	key, value, ok2 := strings.Cut(setting, "=")
	switch {
	case !ok || !ok2 || key == "":
		return errors.New("expected backend,key=value")
	case name == "":
		return errors.New("unsupported: settings of all backends, expected the name of one before the comma")
	}
	if c[name] == nil {
		c[name] = map[string]string{}
	}
	c[name][key] = value
	return nil
}
