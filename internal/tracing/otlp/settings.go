package otlp

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/tracing"
)

// The protocols that spans leave by, with the names that OpenTelemetry has for them.
const (
	ProtocolHTTP = "http/protobuf"
	ProtocolGRPC = "grpc"
)

// What holds when nothing else is given. The port and path are those that collectors listen at.
const (
	defaultHTTP    = "http://localhost:4318/v1/traces"
	defaultGRPC    = "http://localhost:4317"
	defaultService = "triton-inference-server"
	defaultQueue   = 2048
	defaultDelay   = 5 * time.Second
	defaultBatch   = 512

	serviceName = "service.name"
	maxNumber   = 1 << 30
)

// Settings configure an Exporter. See ParseSettings.
type Settings struct {
	// URL is the collector's endpoint, Protocol one of the Protocol constants.
	URL, Protocol string
	Resource      map[string]string // describes the server; it has a service.name
	// QueueSize bounds the waiting spans, Delay how long they wait, and BatchSize how many are sent together.
	QueueSize, BatchSize int
	Delay                time.Duration
	Detail               bool // adds spans, events and attributes that Triton does not send
}

// ParseSettings parses the pairs that follow "opentelemetry," in --trace-config, in order: url, protocol, resource
// (as key=value, repeated), bsp_max_queue_size, bsp_schedule_delay (milliseconds), bsp_max_export_batch_size and
// detail. Missing values come from the environment, for example OTEL_BSP_SCHEDULE_DELAY and OTEL_SERVICE_NAME.
func ParseSettings(pairs [][2]string, getenv func(string) string) (*Settings, error) {
	s := &Settings{Protocol: ProtocolHTTP, Resource: map[string]string{serviceName: defaultService}}
	if name := getenv("OTEL_SERVICE_NAME"); name != "" {
		s.Resource[serviceName] = name
	}
	numbers := map[string]int{}
	for _, p := range pairs {
		if err := s.set(p[0], p[1], numbers); err != nil {
			return nil, err
		}
	}
	if s.URL == "" {
		s.URL = map[string]string{ProtocolHTTP: defaultHTTP, ProtocolGRPC: defaultGRPC}[s.Protocol]
	}
	return s, s.number(numbers, getenv)
}

func (s *Settings) set(key, value string, numbers map[string]int) error {
	switch key {
	case "url":
		s.URL = value
		if !strings.Contains(value, "://") {
			s.URL = "http://" + value
		}
		u, err := url.Parse(s.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return invalid(key, value, "http://HOST:PORT/PATH or https://HOST:PORT/PATH")
		}
	case "protocol":
		if value != ProtocolHTTP && value != ProtocolGRPC {
			return invalid(key, value, ProtocolHTTP+" or "+ProtocolGRPC)
		}
		s.Protocol = value
	case "resource":
		k, v, ok := strings.Cut(value, "=")
		if !ok || k == "" {
			return invalid(key, value, "KEY=VALUE")
		}
		s.Resource[k] = v
	case "detail":
		on, err := strconv.ParseBool(value)
		if err != nil {
			return invalid(key, value, "true or false")
		}
		s.Detail = on
	case "bsp_max_queue_size", "bsp_schedule_delay", "bsp_max_export_batch_size":
		n, err := strconv.Atoi(value)
		if err != nil || n <= 0 || n > maxNumber {
			return invalid(key, value, fmt.Sprintf("a number from 1 to %d", maxNumber))
		}
		numbers[key] = n
	default:
		return status.Errorf(status.InvalidArg, "unknown setting 'opentelemetry,%s' of --trace-config, expected one of: "+
			"url, protocol, resource, bsp_max_queue_size, bsp_schedule_delay, bsp_max_export_batch_size, detail", key)
	}
	return nil
}

// number sets the numeric settings from the given values, the environment or the defaults.
func (s *Settings) number(given map[string]int, getenv func(string) string) error {
	of := func(key, env string, otherwise int) int {
		if n := given[key]; n > 0 {
			return n
		}
		if n, err := strconv.Atoi(getenv(env)); err == nil && n > 0 && n <= maxNumber {
			return n
		}
		return otherwise
	}
	s.QueueSize = of("bsp_max_queue_size", "OTEL_BSP_MAX_QUEUE_SIZE", defaultQueue)
	s.Delay = time.Duration(of("bsp_schedule_delay", "OTEL_BSP_SCHEDULE_DELAY", int(defaultDelay/time.Millisecond))) * time.Millisecond
	s.BatchSize = of("bsp_max_export_batch_size", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", min(defaultBatch, s.QueueSize))
	if s.BatchSize > s.QueueSize {
		return status.Errorf(status.InvalidArg, "--trace-config opentelemetry,bsp_max_export_batch_size is %d, expected at most bsp_max_queue_size, which is %d", s.BatchSize, s.QueueSize)
	}
	return nil
}

func invalid(key, value, expected string) error {
	return status.Errorf(status.InvalidArg, "--trace-config opentelemetry,%s is '%s', expected %s", key, value, expected)
}

// Shown returns the settings in the form that clients read.
func (s *Settings) Shown() *tracing.Exporter {
	var resource []string
	for _, k := range slices.Sorted(maps.Keys(s.Resource)) {
		resource = append(resource, k+"="+s.Resource[k])
	}
	shown := s.URL
	if u, err := url.Parse(s.URL); err == nil {
		shown = u.Redacted()
	}
	return &tracing.Exporter{
		URL: shown, Protocol: s.Protocol, Resource: strings.Join(resource, ","),
		QueueSize: strconv.Itoa(s.QueueSize), ScheduleDelay: strconv.FormatInt(s.Delay.Milliseconds(), 10), BatchSize: strconv.Itoa(s.BatchSize),
		Detail: strconv.FormatBool(s.Detail),
	}
}
