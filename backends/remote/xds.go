package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/status"
)

// The environment variables that name the control plane of xds:/// targets. grpc-go reads them when the program starts.
const (
	bootstrapFile = "GRPC_XDS_BOOTSTRAP"
	bootstrapText = "GRPC_XDS_BOOTSTRAP_CONFIG"
)

const bootstrapExample = `{"xds_servers": [{"server_uri": "HOST:PORT", "channel_creds": [{"type": "insecure"}]}], "node": {"id": "NAME"}}`

// controlled reports whether a control plane names the servers of the endpoint. It then also decides balancing, retries and ejection: the service
// config of the parameters is not used.
func (s *settings) controlled() bool { return strings.HasPrefix(s.endpoint, "xds:") }

// decided lists parameters that the control plane decides, with the resource that has them there.
var decided = map[string]string{
	"load_reports": "the policy of its cluster", "attempts": "the retry policy of its route", "health_check": "the health status of its endpoints",
	"outlier_detection": "its cluster", "outlier_interval": "its cluster", "outlier_time": "its cluster", "outlier_failures": "its cluster",
	"outlier_requests": "its cluster",
}

// checkDecided reports a parameter of a model that would have no effect.
func (s *settings) checkDecided(given map[string]string) error {
	if !s.controlled() {
		return nil
	}
	for _, key := range paramKeys() {
		where, ok := decided[key]
		if key == "balancing" && (given[key] == roundRobin || given[key] == least) {
			where, ok = "the policy of its cluster", true
		}
		if _, set := given[key]; set && ok {
			return s.fail(key, " is '%s', but the control plane decides this for '%s': leave the parameter out, and set it in %s", given[key], s.endpoint, where)
		}
	}
	return nil
}

// bootstrap is what errors name of grpc's bootstrap file.
type bootstrap struct {
	Servers []struct {
		URI         string            `json:"server_uri"`
		Credentials []json.RawMessage `json:"channel_creds"`
	} `json:"xds_servers"`
	source string // for example "file '/etc/xds.json' of GRPC_XDS_BOOTSTRAP"
}

// readBootstrap reads the bootstrap file. grpc-go would report a bad one as an endpoint that is away, and without the file's name.
func readBootstrap() (*bootstrap, error) {
	b := &bootstrap{source: bootstrapText}
	text := []byte(os.Getenv(bootstrapText))
	if path := os.Getenv(bootstrapFile); path != "" {
		var err error
		if text, err = os.ReadFile(path); err != nil {
			return nil, status.Errorf(status.InvalidArg, "cannot read the xDS bootstrap file of %s: %w", bootstrapFile, err)
		}
		b.source = fmt.Sprintf("file '%s' of %s", path, bootstrapFile)
	}
	if len(text) == 0 && b.source == bootstrapText {
		return nil, status.Errorf(status.InvalidArg, "no xDS control plane is known: the server's environment has neither %s, the path of a bootstrap file, nor %s, its content; expected for example %s",
			bootstrapFile, bootstrapText, bootstrapExample)
	}
	if err := json.Unmarshal(text, b); err != nil {
		return nil, status.Errorf(status.InvalidArg, "xDS bootstrap %s is malformed: %w; expected for example %s", b.source, err, bootstrapExample)
	}
	if len(b.Servers) == 0 {
		return nil, status.Errorf(status.InvalidArg, "xDS bootstrap %s has no 'xds_servers', expected for example %s", b.source, bootstrapExample)
	}
	for i := range b.Servers {
		if s := &b.Servers[i]; s.URI == "" || len(s.Credentials) == 0 {
			return nil, status.Errorf(status.InvalidArg, "xDS bootstrap %s has '%s' as 'server_uri' and %d 'channel_creds' in entry %d of 'xds_servers', expected for example %s",
				b.source, s.URI, len(s.Credentials), i, bootstrapExample)
		}
	}
	return b, nil
}

// String names the control planes and where they are from.
func (b *bootstrap) String() string {
	var list []string
	for i := range b.Servers {
		list = append(list, b.Servers[i].URI)
	}
	return fmt.Sprintf("xDS control plane %s (%s)", strings.Join(list, ", "), b.source)
}

// explain adds the control plane to an error of the first call, if it named no server. tried has the addresses that were connected to.
func (b *bootstrap) explain(err error, s *settings, tried []string) error {
	if len(tried) > 0 || status.CodeOf(err) != status.Unavailable {
		return err
	}
	return status.Reasonf(status.RemoteUnavailable, "%s; the %s has named no server for '%s' so far", status.Text(err), b, s.endpoint)
}

// tried returns the addresses to which connections were opened or failed.
func (w *watcher) tried() (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for addr := range w.opened {
		list = append(list, addr)
	}
	if w.failed != nil && len(list) == 0 {
		list = append(list, w.failed.Error())
	}
	slices.Sort(list)
	return list
}

// limited returns ctx with the parameter timeout, where the service config does not have it. stop must be called.
func (s *settings) limited(ctx context.Context) (_ context.Context, stop context.CancelFunc) {
	if s.timeout == 0 || !s.controlled() {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.timeout)
}
