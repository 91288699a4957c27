package options

import (
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// endpointFlags returns the flags that every protocol has. checkPorts checks the range of the port: as in Triton, the
// port of a disabled protocol may be any number.
func endpointFlags(name, title, address, port string, e *Endpoint) []Flag {
	return []Flag{
		onOff("allow-"+name, &e.Enabled, yes, "Serve "+title),
		word(name+"-address", argAddress, &e.Address, address, "Address that "+title+" listens on"),
		number(name+"-port", argPort, &e.Port, port, math.MinInt32, math.MaxInt32, "Port that "+title+" listens on; 0 selects a free port"),
	}
}

func reuseFlag(name, title string, e *Endpoint) Flag {
	return onOff("reuse-"+name+"-port", &e.ReusePort, no, "Share the port of "+title+" with other servers on this machine")
}

// tlsFlags returns the flags of encrypted connections.
func tlsFlags(name, title string, t *TLS) []Flag {
	return []Flag{
		onOff(name+"-use-ssl", &t.Enabled, no, "Encrypt "+title+" with TLS"),
		onOff(name+"-use-ssl-mutual", &t.Mutual, no, "Encrypt "+title+" with TLS and require client certificates"),
		word(name+"-server-cert", argFile, &t.ServerCert, "", "PEM file of the server's certificate, read again when it changes"),
		word(name+"-server-key", argFile, &t.ServerKey, "", "PEM file of the server's key"),
		word(name+"-root-cert", argFile, &t.RootCert, "", "PEM file of the authority that signs clients' certificates"),
	}
}

func (o *Options) httpFlags() []Flag {
	h := &o.HTTP
	encrypted := tlsFlags("http", "HTTP", &h.TLS)
	for i := range encrypted {
		encrypted[i].Own = true
	}
	return grouped("HTTP", slices.Concat(endpointFlags("http", "HTTP", "0.0.0.0", "8000", &h.Endpoint), []Flag{
		reuseFlag("http", "HTTP", &h.Endpoint),
		{
			Name: "http-header-forward-pattern", Arg: argPattern, set: pattern(&h.ForwardPattern),
			Help: "Regular expression of the headers that become request parameters, in any case unless it begins with (?-i)",
		},
		{Name: "http-max-input-size", Arg: argBytes, Default: "67108864", Help: "Largest request", set: o.maxInput},
		onOff("http-fast-path", &h.FastPath, yes, "Serve plain HTTP/1.1 requests without Go's net/http and gRPC without grpc-go's transport, and call the sockets of both directly").own(),
		onOff("http-text-api", &h.TextAPI, yes, "Serve the routes of OpenAI, Cohere, Jina and Text Embeddings Inference for models whose parameters name their tensors, see docs/openai.md").own(),
		{
			Name: "http-restricted-api", Arg: "api,...:key=value", Many: true, set: restriction(&h.Restricted, "http-restricted-api", "api"),
			Help: "Restrict parts of the API to clients that send the header KEY: VALUE; the parts are " + strings.Join(infer.APINames(), ", "),
		},
		onOff("mcp", &h.Tools, no, "Serve models with the parameter api.tool as tools for agents, by the Model Context Protocol, at /mcp of the HTTP port").own(),
		words("http-allowed-host", "name", &h.Hosts, "Name by which browsers reach the dashboard and change the server, besides localhost, the machine's name and its addresses; * for any").own(),
		words("http-allowed-origin", "origin", &h.Origins, "Origin of another site, for example https://tools.example, whose pages may change the server").own(),
	}, encrypted)...)
}

func (o *Options) maxInput(value string) error {
	n, err := parseInt(value, math.MinInt64, math.MaxInt64)
	if err == nil && n <= 0 {
		err = fmt.Errorf("Error: --http-max-input-size must be greater than 0. Got %d", n) //nolint:staticcheck // Triton's text
	}
	o.HTTP.MaxInput = n
	return err
}

func (o *Options) grpcFlags() []Flag {
	g := &o.GRPC
	return grouped("gRPC", slices.Concat(endpointFlags("grpc", "gRPC", "0.0.0.0", "8001", &g.Endpoint), []Flag{
		reuseFlag("grpc", "gRPC", &g.Endpoint),
		{
			Name: "grpc-header-forward-pattern", Arg: argPattern, set: pattern(&g.ForwardPattern),
			Help: "Regular expression of the metadata that become request parameters, in any case unless it begins with (?-i)",
		},
		{
			Name: "grpc-restricted-protocol", Arg: "protocol,...:key=value", Many: true, set: restriction(&g.Restricted, "grpc-restricted-protocol", "protocol"),
			Help: "Restrict parts of the protocol to clients that send the metadata triton-grpc-protocol-KEY: VALUE",
		},
	}, tlsFlags("grpc", "gRPC", &g.TLS), []Flag{
		oneOf("grpc-infer-response-compression-level", "level", &g.Compression, "Compression of responses: none, low, medium or high", "none", "low", "medium", "high"),
		span("grpc-keepalive-time", argMillis, &g.KeepaliveTime, "7200000", 1, "Time after which an idle connection is pinged"),
		span("grpc-keepalive-timeout", argMillis, &g.KeepaliveTimeout, "20000", 1, "Longest wait for the response to a ping"),
		onOff("grpc-keepalive-permit-without-calls", &g.PermitWithoutCalls, no, "Allow clients to ping while no call is open"),
		span("grpc-http2-min-recv-ping-interval-without-data", argMillis, &g.MinPingInterval, "300000", 0, "Shortest time between two pings of a client"),
		span("grpc-max-connection-age", argMillis, &g.MaxAge, "", 0, "Time after which a connection is closed in order; never by default"),
		span("grpc-max-connection-age-grace", argMillis, &g.MaxAgeGrace, "", 0, "Time after that until open calls are cut off; never by default"),
		number("grpc-max-message-size", argBytes, &g.MaxMessage, "2147483647", 1, math.MaxInt32, "Largest message, before and after decompression").own(),
	})...)
}

func (o *Options) metricsFlags() []Flag {
	m := &o.Metrics
	list := endpointFlags("metrics", "metrics", "", "8002", &m.Endpoint)
	list[1].Help += ", that of HTTP when left out"
	return grouped("Metrics", append(list,
		Flag{
			Name: "metrics-config", Arg: "domain,key=value", Many: true, set: o.metricsConfig,
			Help: "Which latencies are exported: counter_latencies=true, summary_latencies=false, histogram_latencies=false, phase_histograms=true, " +
				"summary_quantiles=\"0.5:0.05,0.9:0.01,0.95:0.001,0.99:0.001,0.999:0.001\"",
		},
		onOff("allow-cpu-metrics", &m.Export.CPU, yes, "Export nv_cpu_*, the machine's load and memory"),
		onOff("allow-gpu-metrics", &m.Export.GPU, yes, "Export nv_gpu_* and nv_energy_consumption, if NVIDIA's driver has them"),
		Flag{Name: "metrics-interval-ms", Arg: argMillis, Default: "2000", Help: "Shortest time between two measurements of the machine and its GPUs", set: o.metricsInterval},
	)...)
}

// metricsConfig reads key=value or domain,key=value. Only the first comma separates: quantiles contain commas.
func (o *Options) metricsConfig(value string) error {
	before, v, ok := strings.Cut(value, "=")
	domain, key, named := strings.Cut(before, ",")
	if !named {
		domain, key = "", before
	}
	switch {
	case !ok || key == "" || v == "":
		return fmt.Errorf("--metrics-config option format is '<setting>=<value>' or '<domain>,<setting>=<value>'. Got %s", value)
	case domain != "" && domain != "global" && domain != "model":
		return fmt.Errorf("unknown domain '%s' of --metrics-config, expected one of: global, model", domain)
	}
	x := &o.Metrics.Export
	not := func(to *bool) setter {
		return func(value string) error {
			on, err := parseBool(value)
			*to = !on
			return err
		}
	}
	return setKey("metrics-config", "", key, v, map[string]setter{
		"summary_quantiles": o.quantiles, "counter_latencies": not(&x.NoCounterLatencies), "phase_histograms": not(&x.NoPhases),
		"summary_latencies": boolean(&x.Summaries), "histogram_latencies": boolean(&x.Histograms),
	})
}

// quantiles reads RANK:ERROR,RANK:ERROR. For example: "0.5:0.05,0.99:0.001".
func (o *Options) quantiles(text string) error {
	var list []telemetry.Quantile
	for part := range strings.SplitSeq(strings.Trim(text, `"`), ",") {
		rank, off, ok := strings.Cut(part, ":")
		q, rest, err := fraction(rank)
		e, rest2, err2 := fraction(off)
		if !ok || err != nil || err2 != nil {
			return fmt.Errorf("--metrics-config summary_quantiles has '%s', expected QUANTILE:ERROR, each from 0 to 1", part)
		}
		if rest+rest2 != "" {
			o.notice("--metrics-config summary_quantiles", fmt.Sprintf("'%s' is read as %v:%v, as Triton does; expected QUANTILE:ERROR", part, q, e))
		}
		list = append(list, telemetry.Quantile{Rank: q, Error: e})
	}
	o.Metrics.Export.Quantiles = list
	return nil
}

// leading matches the number at the beginning of a text, as C's strtod reads one.
var leading = regexp.MustCompile(`^\s*[0-9]*\.?[0-9]*([eE][-+]?[0-9]+)?`)

// fraction reads the number from 0 to 1 at the beginning of s; rest is the text after it.
func fraction(s string) (v float64, rest string, err error) {
	number := leading.FindString(s)
	v, err = strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err == nil && (v < 0 || v > 1) {
		err = strconv.ErrRange
	}
	return v, strings.TrimSpace(s[len(number):]), err
}

func (o *Options) metricsInterval(value string) error {
	ms, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return fmt.Errorf("Invalid option value. Got %s", value) //nolint:staticcheck // Triton's words
	}
	if !(ms > 0 && ms <= maxInt) {
		return fmt.Errorf("Provided option value is out of bound. Got %s, expected more than 0", value) //nolint:staticcheck // Triton's words
	}
	o.Metrics.Export.Interval = time.Duration(ms * float64(time.Millisecond))
	return nil
}

func (o *Options) logFlags() []Flag {
	return grouped("Log",
		Flag{Name: "log-verbose", Arg: "level", Default: "0", Help: "1 or more logs every step of loading and every request", set: o.verbose},
		onOff("log-info", &o.Log.Info, yes, "Log information"),
		onOff("log-warning", &o.Log.Warning, yes, "Log warnings"),
		onOff("log-error", &o.Log.Error, yes, "Log errors"),
		onOff("log-notices", &o.LogNotices, yes, "Log notices about configurations, for example that Triton does not have a backend: the codes TUT6001 and above of tutti validate").own(),
		Flag{
			Name: "log-format", Arg: "format", Default: logs.Default, Help: "default is Triton's format, ISO8601 has full dates, json has a JSON object per line", set: o.logFormat,
		},
		word("log-file", argFile, &o.Log.File, "", "File of the log, instead of the standard streams"),
	)
}

// verbose reads a level, or a boolean for 1 and 0.
func (o *Options) verbose(value string) error {
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

// logFormat reads a format, with regard to case.
func (o *Options) logFormat(value string) error {
	if !slices.Contains(logs.Formats(), value) {
		return notOneOf("log-format", value, logs.Formats())
	}
	o.Log.Format = value
	return nil
}

func (o *Options) traceFlags() []Flag {
	const instead = "--trace-config "
	t := &o.Trace
	return grouped("Trace",
		Flag{
			Name: "trace-config", Arg: "mode,key=value", Many: true, set: o.traceConfig,
			Help: "Settings of tracing: level=OFF|TIMESTAMPS|TENSORS, rate=N, count=N, mode=triton|opentelemetry, triton,file=FILE, triton,log-frequency=N, opentelemetry,url=URL, opentelemetry,protocol=http/protobuf|grpc, opentelemetry,resource=KEY=VALUE, opentelemetry,bsp_max_queue_size=N, opentelemetry,bsp_schedule_delay=MS, opentelemetry,bsp_max_export_batch_size=N, opentelemetry,detail=true|false",
		},
		word("trace-file", argFile, &t.File, "", "File of the traces").deprecated(instead+"triton,file=FILE"),
		Flag{Name: "trace-level", Arg: "level", Many: true, Instead: instead + "level=LEVEL", Help: "OFF, TIMESTAMPS or TENSORS", set: o.traceLevel},
		number("trace-rate", argNumber, &t.Rate, "1000", 0, maxInt, "Trace one of this number of requests").deprecated(instead+"rate=N"),
		number("trace-count", argNumber, &t.Count, "-1", -1, maxInt, "Number of requests to trace, -1 for no end").deprecated(instead+"count=N"),
		number("trace-log-frequency", argNumber, &t.LogFrequency, "0", 0, maxInt, "Number of traces in each file, 0 for a single file").
			deprecated(instead+"triton,log-frequency=N"),
	)
}

func (o *Options) traceLevel(value string) error {
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
	return texts(&o.Trace.Levels)(level)
}

// traceConfig reads mode,key=value, or key=value for both modes.
func (o *Options) traceConfig(value string) error {
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
	t := &o.Trace
	switch strings.ToLower(mode) {
	case "":
		return setKey("trace-config", "", key, v, map[string]setter{
			"rate": integer(&t.Rate, 0, maxInt), "count": integer(&t.Count, -1, maxInt), "level": o.traceLevel, "mode": o.traceMode,
		})
	case traceTriton:
		return setKey("trace-config", "triton,", key, v, map[string]setter{"file": text(&t.File), "log-frequency": integer(&t.LogFrequency, 0, maxInt)})
	case traceOpenTelemetry:
		t.OpenTelemetry = append(t.OpenTelemetry, [2]string{key, v})
		return nil
	}
	return o.traceMode(mode)
}

func (o *Options) traceMode(value string) error {
	switch strings.ToLower(value) {
	case traceTriton, traceOpenTelemetry:
		o.Trace.Mode = strings.ToLower(value)
		return nil
	}
	return fmt.Errorf(`invalid value for trace mode option: %s. Available options are "triton" and "opentelemetry"`, value)
}

const (
	maxCaptureBytes = 64 << 30
	minStoreBytes   = 1 << 20
	maxStoreBytes   = 4 << 30
)

func (o *Options) dashboardFlags() []Flag {
	s, c := &o.TraceStore, &o.Capture
	list := []Flag{
		onOff("dashboard", &o.Dashboard.Enabled, yes, "Serve the dashboard and its API at /ui/ of the HTTP port"),
		word("dashboard-token", "text", &o.Dashboard.Token, "", "Token with which clients of the dashboard may change things; without one the dashboard is read-only"),
		{Name: "dashboard-token-file", Arg: argFile, Help: "File with the token, which then is not visible in lists of processes", set: o.tokenFile},
		{
			Name: "dashboard-trace-link", Arg: "name=url", Many: true, set: o.traceLink,
			Help: "Link of the page of a request to its trace in another program, for example Jaeger=https://jaeger.example/trace/{trace}; the URL may also have {span}, {start_ms} and {end_ms}",
		},
		{Name: "trace-store-bytes", Arg: argBytes, Default: "67108864", Help: "Memory for the traces of recent requests: at least 1048576, or 0 for none", set: o.storeBytes},
		number("trace-store-every", argNumber, &s.Every, "100", 0, maxInt, "Store one of this number of requests that neither fail nor are slow; 0 stores none of them"),
		number("trace-store-rate", argNumber, &s.AtMost, "2000", 0, maxInt,
			"Most requests to examine in a second; of further ones only failures are examined; 0 for no bound"),
		words("trace-param", "name", &s.Params, "Request parameter to store with traces"),
		number("capture-bytes", argBytes, &c.Bytes, "268435456", 0, maxCaptureBytes,
			"Memory for captured tensors, which need the dashboard's token; without a token, or with 0, no tensors can be captured"),
		number("capture-request-bytes", argBytes, &c.RequestBytes, "16777216", 1, maxCaptureBytes,
			"Most memory for the tensors of one request; of further tensors only type and shape are captured"),
		words("capture-redact-tensor", argPattern, &c.RedactTensors, "Names of tensors of which only type and shape are captured; * matches any text, ? a character"),
		words("capture-redact-model", argPattern, &c.RedactModels, "Models and ensembles of whose inputs and outputs only type and shape are captured; * and ? as above"),
	}
	for i := range list {
		list[i].Own = true
	}
	return grouped("Dashboard", list...)
}

// traceLink adds a link of the page of a request.
func (o *Options) traceLink(value string) error {
	l, err := inspect.ParseLinkTemplate(value)
	if err == nil {
		o.Dashboard.Links = append(o.Dashboard.Links, l)
	}
	return err
}

// tokenFile reads the token from a file.
func (o *Options) tokenFile(value string) error {
	b, err := os.ReadFile(value)
	if err != nil {
		return fmt.Errorf("unable to read the dashboard's token: %w", err)
	}
	if o.Dashboard.Token = strings.TrimSpace(string(b)); o.Dashboard.Token == "" {
		return errors.New("the file of the dashboard's token is empty: " + value)
	}
	return nil
}

// storeBytes sets the size of the store.
func (o *Options) storeBytes(value string) error {
	n, err := parseInt(value, 0, maxStoreBytes)
	if err == nil && n > 0 && n < minStoreBytes {
		return fmt.Errorf("invalid argument for --trace-store-bytes: %d, expected 0 or at least %d", n, minStoreBytes)
	}
	o.TraceStore.Bytes = n
	return err
}
