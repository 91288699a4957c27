package remote

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
)

// The balancing policies.
const (
	roundRobin = "round_robin"
	weighted   = "weighted_round_robin"
	least      = "least_request"
	bySequence = "sequence"
)

// outlierPolicy is grpc's policy of outlier detection. It comes with xDS, which package cmd imports: see decision 031.
const outlierPolicy = "outlier_detection_experimental"

// settings are what the parameters of a model say, with those of --backend-config as defaults.
type settings struct {
	name string // of the local model, for errors

	endpoint       string
	model, version string
	balancing      string

	tls                          bool
	ca, cert, key, serverName    string
	authorization                string // path of a file
	timeout, loadTimeout         time.Duration
	idempotent                   bool
	attempts                     int
	health                       bool
	keepalive, keepaliveTimeout  time.Duration
	connections                  int
	maxMessage                   int
	compression                  string
	outliers                     bool
	outlierInterval, outlierTime time.Duration
	outlierShare, outlierVolume  int
	oob                          bool
}

// param is one parameter: its name, its documentation, and how its value is stored.
type param struct {
	key string
	own bool // belongs to one model: --backend-config does not have it
	doc string
	set func(s *settings, value string) error
}

// params lists the parameters in the order of the documentation.
func params() []param {
	return []param{
		{"endpoint", false, "Where the far server is: `HOST:PORT`; several separated by commas; `dns:///NAME:PORT`, of which every address is used; `xds:///NAME`, whose servers an xDS control plane names; or `unix:///PATH`. Required, here or in `--backend-config=remote,endpoint=`", text(func(s *settings) *string { return &s.endpoint })},
		{"remote_model", true, "Name of the far model; default: the name of this one", text(func(s *settings) *string { return &s.model })},
		{"remote_version", true, "Version of the far model; default: the one that its server prefers", version},
		{"balancing", false, "`round_robin` (default), `weighted_round_robin` by the load that servers report by ORCA, `least_request`, or `sequence`, which sends all requests of a sequence to the same server and is the default for far models with sequence batching", oneOf(func(s *settings) *string { return &s.balancing }, roundRobin, weighted, least, bySequence)},
		{"load_reports", false, "How `weighted_round_robin` learns the load: `call` (default), with each response, or `stream`, which servers may limit to once in 30 s", loadReports},
		{"tls", false, "`true`: connections are encrypted; default: if any parameter `tls_*` is set", truth(func(s *settings) *bool { return &s.tls })},
		{"tls_ca", false, "File of trusted authorities in PEM; default: those of the system", text(func(s *settings) *string { return &s.ca })},
		{"tls_cert, tls_key", false, "Files of the client's certificate and key in PEM, read again for each connection", nil},
		{"tls_cert", false, "", text(func(s *settings) *string { return &s.cert })},
		{"tls_key", false, "", text(func(s *settings) *string { return &s.key })},
		{"tls_server_name", false, "Name that the server's certificate must have; default: the host of the endpoint", text(func(s *settings) *string { return &s.serverName })},
		{"authorization_file", false, "File with the value of the header `authorization`, for example `Bearer TOKEN`, read again when it changes; needs TLS", text(func(s *settings) *string { return &s.authorization })},
		{"timeout", false, "How long one request may take, all its attempts together, for example `500ms`; default: no limit but the deadline of the client, which is always passed on. A decoupled model's limits the whole stream", length(func(s *settings) *time.Duration { return &s.timeout })},
		{"load_timeout", false, "How long loading waits for the far model's metadata; default `10s`", length(func(s *settings) *time.Duration { return &s.loadTimeout })},
		{"idempotent", true, "`true`: a request may be sent again when a server is UNAVAILABLE or a connection breaks; default `false`: only if it was not sent", truth(func(s *settings) *bool { return &s.idempotent })},
		{"attempts", false, "How often an idempotent request is sent at most, 2 to 5; default 3", number(func(s *settings) *int { return &s.attempts }, 2, 5)},
		{"outlier_detection", false, "`true`: servers that fail more often than the others get no requests for a while", truth(func(s *settings) *bool { return &s.outliers })},
		{"outlier_interval, outlier_time", false, "How often failures are counted (default `10s`), and how long a server gets no requests (default `30s`)", nil},
		{"outlier_interval", false, "", length(func(s *settings) *time.Duration { return &s.outlierInterval })},
		{"outlier_time", false, "", length(func(s *settings) *time.Duration { return &s.outlierTime })},
		{"outlier_failures, outlier_requests", false, "Percentage of failed requests (default 50), of at least so many in an interval (default 20), from which a server is an outlier", nil},
		{"outlier_failures", false, "", number(func(s *settings) *int { return &s.outlierShare }, 1, 100)},
		{"outlier_requests", false, "", number(func(s *settings) *int { return &s.outlierVolume }, 1, math.MaxInt32)},
		{"health_check", false, "`true` (default): a server whose gRPC health service says NOT_SERVING gets no requests; one without that service does. `false`: not checked", truth(func(s *settings) *bool { return &s.health })},
		{"keepalive_time, keepalive_timeout", false, "How long a silent connection waits before a ping (default `310s`, which servers accept by default; at least `10s`), and for its response before it is closed (default `20s`)", nil},
		{"keepalive_time", false, "", length(func(s *settings) *time.Duration { return &s.keepalive })},
		{"keepalive_timeout", false, "", length(func(s *settings) *time.Duration { return &s.keepaliveTimeout })},
		{"connections", false, "Connections to each server, 1 to 64, which models with the same settings share; default 1", number(func(s *settings) *int { return &s.connections }, 1, 64)},
		{"max_message_bytes", false, "Size of the largest request and response; default 2147483647", number(func(s *settings) *int { return &s.maxMessage }, 1, math.MaxInt32)},
		{"compression", false, "`none` (default) or `gzip`, of requests", oneOf(func(s *settings) *string { return &s.compression }, "none", "gzip")},
	}
}

func text(to func(*settings) *string) func(*settings, string) error {
	return func(s *settings, value string) error {
		*to(s) = strings.TrimSpace(value)
		return nil
	}
}

func oneOf(to func(*settings) *string, words ...string) func(*settings, string) error {
	return func(s *settings, value string) error {
		if !slices.Contains(words, value) {
			return fmt.Errorf("expected %s or %s", strings.Join(words[:len(words)-1], ", "), words[len(words)-1])
		}
		*to(s) = value
		return nil
	}
}

func truth(to func(*settings) *bool) func(*settings, string) error {
	return func(s *settings, value string) error {
		if value != "true" && value != "false" {
			return errors.New("expected true or false")
		}
		*to(s) = value == "true"
		return nil
	}
}

func number(to func(*settings) *int, least, most int) func(*settings, string) error {
	return func(s *settings, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < least || n > most {
			return fmt.Errorf("expected a number from %d to %d", least, most)
		}
		*to(s) = n
		return nil
	}
}

func length(to func(*settings) *time.Duration) func(*settings, string) error {
	return func(s *settings, value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d < time.Millisecond {
			return errors.New("expected a duration of at least 1ms, for example 500ms or 10s")
		}
		*to(s) = d
		return nil
	}
}

func version(s *settings, value string) error {
	if n, err := strconv.ParseInt(value, 10, 64); err != nil || n < 1 {
		return errors.New("expected the number of a version")
	}
	s.version = value
	return nil
}

func loadReports(s *settings, value string) error {
	if value != "call" && value != "stream" {
		return errors.New("expected call or stream")
	}
	s.oob = value == "stream"
	return nil
}

// paramKeys returns the names of all parameters, sorted.
func paramKeys() (keys []string) {
	for _, p := range params() {
		if p.set != nil {
			keys = append(keys, p.key)
		}
	}
	slices.Sort(keys)
	return keys
}

// sharedKeys returns the names of the parameters that --backend-config has, too, sorted.
func sharedKeys() (keys []string) {
	for _, p := range params() {
		if p.set != nil && !p.own {
			keys = append(keys, p.key)
		}
	}
	slices.Sort(keys)
	return keys
}

func guide() backends.Guide {
	g := backends.Guide{Doc: guideDoc, Limits: guideLimits}
	for _, p := range params() {
		if p.doc != "" {
			g.Params = append(g.Params, backends.Param{Key: p.key, Doc: p.doc})
		}
	}
	return g
}

// parseSettings parses the parameters of a model, and before them the values of --backend-config.
func parseSettings(name string, given, shared map[string]string) (*settings, error) {
	s := &settings{
		name: name, model: name, loadTimeout: 10 * time.Second, attempts: 3, health: true,
		keepalive: 310 * time.Second, keepaliveTimeout: 20 * time.Second, connections: 1, maxMessage: math.MaxInt32, compression: "none",
		outlierInterval: 10 * time.Second, outlierTime: 30 * time.Second, outlierShare: 50, outlierVolume: 20,
	}
	for _, p := range params() {
		if p.set == nil {
			continue
		}
		if value, ok := shared[p.key]; ok && !p.own {
			if err := p.set(s, value); err != nil {
				return nil, status.Errorf(status.InvalidArg, "--backend-config=%s,%s is '%s', %w", Name, p.key, value, err)
			}
		}
		if value, ok := given[p.key]; ok {
			if err := p.set(s, value); err != nil {
				return nil, config.Errorf(config.BadParam, "parameters", "model '%s': parameter '%s' is '%s', %w", name, p.key, value, err)
			}
		}
	}
	s.model = cmp.Or(s.model, name)
	s.tls = s.tls || s.ca != "" || s.cert != "" || s.serverName != ""
	if err := s.check(); err != nil {
		return s, err
	}
	return s, s.checkDecided(given)
}

// fail returns the error of a parameter.
func (s *settings) fail(key, format string, args ...any) error {
	if s.name == "" {
		return status.Errorf(status.InvalidArg, "--backend-config=%s,%s"+format, append([]any{Name, key}, args...)...)
	}
	return config.Errorf(config.BadParam, "parameters", "model '%s': parameter '%s'"+format, append([]any{s.name, key}, args...)...)
}

// check reports settings that contradict each other, or that this program lacks.
func (s *settings) check() error {
	switch {
	case (s.cert == "") != (s.key == ""):
		return s.fail("tls_cert", " and 'tls_key' belong together, found '%s' and '%s'", s.cert, s.key)
	case s.authorization != "" && !s.tls:
		return s.fail("authorization_file", " needs an encrypted connection, which would otherwise show the credentials: set 'tls'")
	case s.keepalive < 10*time.Second:
		return s.fail("keepalive_time", " is %s, expected at least 10s", s.keepalive)
	case s.controlled() && resolver.Get("xds") == nil:
		return s.unsupported(s.fail("endpoint", " is '%s', and this program has no xDS: build it without the tag noxds, or import google.golang.org/grpc/xds", s.endpoint))
	case s.outliers && balancer.Get(outlierPolicy) == nil:
		return s.unsupported(s.fail("outlier_detection", " is 'true', and this program has no outlier detection: build it without the tag noxds, or import google.golang.org/grpc/xds"))
	}
	for _, a := range s.addresses() {
		if _, _, err := net.SplitHostPort(a); err != nil || strings.ContainsAny(a, "/ ") {
			return s.fail("endpoint", " has '%s' in a list of addresses, expected HOST:PORT", a)
		}
	}
	return nil
}

func (*settings) unsupported(err error) error {
	return status.Errorf(status.Unsupported, "unsupported: %w", err)
}

// addresses returns the addresses of a static list, nil for any other endpoint.
func (s *settings) addresses() []string {
	if !strings.Contains(s.endpoint, ",") {
		return nil
	}
	list := strings.Split(s.endpoint, ",")
	for i := range list {
		list[i] = strings.TrimPrefix(strings.TrimSpace(list[i]), "dns:///")
	}
	return list
}

// channelKey returns a text that is equal for settings that can share connections.
func (s *settings) channelKey() string {
	c := *s
	c.name, c.model, c.version, c.loadTimeout = "", "", "", 0
	return fmt.Sprintf("%+v", c)
}
