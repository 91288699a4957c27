package tutti

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/keepalive"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/identity"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/server/certs"
	"github.com/tutti-server/tutti/internal/server/grpcapi"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/sites"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// service serves one protocol. Serve and Shutdown are called at most once each, concurrently.
type service interface {
	// Serve accepts connections until Shutdown, and then returns nil. It owns l.
	Serve(l net.Listener) error
	// Shutdown stops accepting and waits for running requests until ctx is done.
	Shutdown(ctx context.Context) error
}

// endpoint is a service with its socket. Its phases: listen, start, stop; stop may be called in each of them.
type endpoint struct {
	title    string // the name in the log, in Triton's words
	config   options.Endpoint
	socket   *socket
	service  service
	listener *listener
	done     chan struct{} // closed when Serve has returned
	err      error         // returned by Serve
	once     sync.Once     // stops
	stopErr  error         // the result of the first stop
}

// listen starts to queue connections, which are accepted after start.
func (e *endpoint) listen() (err error) {
	l, err := e.socket.listen()
	if err == nil {
		e.listener = newListener(l)
	}
	return err
}

// address returns the configured address with the port that the socket has, empty before listen and for nil.
func (e *endpoint) address() string {
	if e == nil || e.listener == nil {
		return ""
	}
	_, port, _ := net.SplitHostPort(e.listener.Addr().String())
	return net.JoinHostPort(e.config.Address, port)
}

// start serves in the background until stop.
func (e *endpoint) start() {
	e.done = make(chan struct{})
	go func() {
		e.err = e.service.Serve(e.listener)
		close(e.done)
	}()
}

// started reports whether start was called.
func (e *endpoint) started() bool { return e.done != nil }

// stop ends the service. Further calls wait for the first and return its result.
func (e *endpoint) stop(ctx context.Context) error {
	e.once.Do(func() { e.stopErr = e.end(ctx) })
	return e.stopErr
}

func (e *endpoint) end(ctx context.Context) error {
	if !e.started() {
		if e.listener == nil {
			return e.socket.close()
		}
		return e.listener.Close()
	}
	err := e.service.Shutdown(ctx)
	<-e.done
	return errors.Join(err, e.err)
}

// metricsService serves the metrics to Prometheus.
type metricsService struct{ http http.Server }

const (
	metricsPath   = "/metrics"
	scrapeTimeout = 10 * time.Second // of a request
	scrapeWrite   = time.Minute      // of a response, from its request's header on
	scrapeIdle    = 10 * time.Minute // between requests, as at the HTTP port
)

// newMetricsService returns the service of m. Every other path than /metrics has an empty response, as in Triton.
func newMetricsService(m *telemetry.Metrics, guard *identity.Guard) *metricsService {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle(metricsPath, guarded(guard, telemetry.Handler(m, r)))
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	return &metricsService{http.Server{
		Handler: mux, ReadHeaderTimeout: scrapeTimeout, ReadTimeout: scrapeTimeout, WriteTimeout: scrapeWrite, IdleTimeout: scrapeIdle,
	}}
}

// guarded serves those who may read the metrics.
func guarded(g *identity.Guard, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.Required() {
			h.ServeHTTP(w, r)
			return
		}
		who, err := g.Authenticate(r.Context(), identity.Credentials{Authorization: r.Header["Authorization"]})
		if err == nil {
			err = who.May(identity.GroupMetrics, "")
		}
		if err == nil {
			h.ServeHTTP(w, r)
			return
		}
		refusal := g.Refuse(who, identity.Event{From: r.RemoteAddr, Via: "metrics", Action: "metrics"}, err)
		code := http.StatusForbidden
		switch refusal.Reason {
		case identity.Unauthenticated:
			w.Header().Set("WWW-Authenticate", `Bearer realm="tutti"`)
			code = http.StatusUnauthorized
		case identity.Undecided:
			code = http.StatusServiceUnavailable
		case identity.Forbidden:
		}
		http.Error(w, refusal.Text, code)
	})
}

func (e *metricsService) Serve(l net.Listener) error {
	if err := e.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (e *metricsService) Shutdown(ctx context.Context) error { return e.http.Shutdown(ctx) }

// socket is the bound address of a service. It is bound before the models are loaded, so that a conflict shows at
// once and not after minutes. Clients are refused until it listens.
type socket struct {
	fd      int              // -1 after it was closed
	address string           // the configured address
	name    string           // of the service: nameHTTP and so on
	service string           // Triton's name of the service
	flag    string           // the flag of its port
	given   *net.TCPListener // given listens already; nil for a socket that is bound here. Its owner becomes the endpoint
}

// The names of services, which sockets of systemd have.
const (
	nameHTTP    = "http"
	nameGRPC    = "grpc"
	nameMetrics = "metrics"
)

// sockets are those of the enabled services; nil for disabled ones.
type sockets struct{ grpc, http, metrics *socket }

// startError names the service that cannot start. Its text begins with Triton's.
type startError struct {
	*socket

	err error
}

func (e *startError) Error() string {
	if errors.Is(e.err, unix.EADDRINUSE) {
		return fmt.Sprintf("failed to start %s service: %s - Socket '%s' already in use; use %s for another port, or end the program that has it",
			e.service, status.Unavailable, e.address, e.flag)
	}
	return fmt.Sprintf("failed to start %s service: %s - unable to listen at '%s': %v; %s chooses another port",
		e.service, status.Unavailable, e.address, e.err, e.flag)
}

func (e *startError) Unwrap() error { return e.err }

// takePorts binds the sockets of the enabled services, except for those that are given.
func takePorts(ctx context.Context, o *options.Options, given ...Listener) (s sockets, err error) {
	taken := map[string]bool{}
	for _, x := range []struct {
		to                  **socket
		name, service, flag string
		endpoint            *options.Endpoint
	}{
		{&s.grpc, nameGRPC, "GRPC", "--grpc-port", &o.GRPC.Endpoint},
		{&s.http, nameHTTP, "HTTP", "--http-port", &o.HTTP.Endpoint},
		{&s.metrics, nameMetrics, "Metrics", "--metrics-port", &o.Metrics.Endpoint},
	} {
		if !x.endpoint.Enabled {
			continue
		}
		l := adopt(x.name, x.endpoint, &given)
		address := net.JoinHostPort(x.endpoint.Address, strconv.Itoa(x.endpoint.Port))
		*x.to = &socket{fd: -1, address: address, name: x.name, service: x.service, flag: x.flag, given: l}
		if l != nil {
			continue
		}
		err := (*x.to).bind(ctx, x.endpoint)
		if err == nil && x.endpoint.Port != 0 && taken[address] {
			err = unix.EADDRINUSE // taken by another service, which does not listen yet
		}
		if err != nil {
			return sockets{}, errors.Join(&startError{*x.to, err}, s.close())
		}
		taken[address] = true
	}
	if err := dropRest(given); err != nil {
		return sockets{}, errors.Join(err, s.close())
	}
	return s, nil
}

// close closes the sockets that do not listen.
func (s *sockets) close() error {
	return errors.Join(s.grpc.close(), s.http.close(), s.metrics.close())
}

// bind binds the address of an endpoint without listening.
func (s *socket) bind(ctx context.Context, e *options.Endpoint) error {
	address, family, err := resolve(ctx, e.Address, e.Port)
	if err != nil {
		return err
	}
	if s.fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0); err != nil {
		return os.NewSyscallError("socket", err)
	}
	set := [][3]int{{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1}}
	if e.ReusePort {
		set = append(set, [3]int{unix.SOL_SOCKET, unix.SO_REUSEPORT, 1})
	}
	if family == unix.AF_INET6 && e.Address == "" { // accept IPv4 and IPv6
		set = append(set, [3]int{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0})
	}
	for _, x := range set {
		if err := unix.SetsockoptInt(s.fd, x[0], x[1], x[2]); err != nil {
			return errors.Join(os.NewSyscallError("setsockopt", err), s.close())
		}
	}
	if err := unix.Bind(s.fd, address); err != nil {
		return errors.Join(os.NewSyscallError("bind", err), s.close())
	}
	return nil
}

// resolve returns the address of a host, IPv4 if it has one; an empty host stands for all addresses of the machine.
func resolve(ctx context.Context, host string, port int) (address unix.Sockaddr, family int, err error) {
	if host == "" {
		if l, err := net.Listen("tcp6", "[::]:0"); err == nil { //nolint:noctx // it only tells whether there is IPv6
			_ = l.Close()
			return &unix.SockaddrInet6{Port: port}, unix.AF_INET6, nil
		}
		return &unix.SockaddrInet4{Port: port}, unix.AF_INET, nil
	}
	list, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, 0, err
	}
	for _, ip := range list {
		if ip = ip.Unmap(); ip.Is4() {
			return &unix.SockaddrInet4{Port: port, Addr: ip.As4()}, unix.AF_INET, nil
		}
	}
	a := &unix.SockaddrInet6{Port: port, Addr: list[0].As16()}
	if zone := list[0].Zone(); zone != "" {
		i, err := net.InterfaceByName(zone)
		if err != nil {
			return nil, 0, err
		}
		a.ZoneId = uint32(i.Index) //nolint:gosec // an index is small
	}
	return a, unix.AF_INET6, nil
}

// backlog is the most connections that wait to be accepted; the kernel may have a lower limit.
const backlog = 1<<16 - 1

// listen starts to accept connections. The listener then owns the socket.
func (s *socket) listen() (*net.TCPListener, error) {
	if l := s.given; l != nil {
		s.given = nil
		return l, nil
	}
	if err := unix.Listen(s.fd, backlog); err != nil {
		return nil, &startError{s, os.NewSyscallError("listen", err)}
	}
	f := os.NewFile(uintptr(s.fd), s.address) //nolint:gosec // a descriptor is not negative
	s.fd = -1
	l, err := net.FileListener(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil //nolint:errcheck,forcetypeassert // of a TCP socket
}

// close closes the socket unless a listener owns it. s may be nil.
func (s *socket) close() error {
	if s != nil && s.given != nil {
		l := s.given
		s.given = nil
		return l.Close()
	}
	if s == nil || s.fd < 0 {
		return nil
	}
	fd := s.fd
	s.fd = -1
	return os.NewSyscallError("close", unix.Close(fd))
}

// wire builds the services that the options enable.
func (s *Server) wire() error {
	shown := &catalog{Lister: s.repo, s: s}
	s.calls.Models = s.repo.Loads
	if err := s.openJobs(shown); err != nil {
		return err
	}
	if s.o.GRPC.Enabled {
		settings, err := s.grpcSettings(shown)
		if err != nil {
			return err
		}
		s.grpc = &endpoint{title: "GRPCInferenceService", config: s.o.GRPC.Endpoint, socket: s.sockets.grpc, service: grpcapi.New(settings)}
		s.endpoints = append(s.endpoints, s.grpc)
	}
	if s.o.HTTP.Enabled || s.jobs != nil {
		settings, err := s.httpSettings(shown)
		if err != nil {
			return err
		}
		if s.o.HTTP.Enabled && s.o.Dashboard.Enabled {
			if settings.UI, err = s.dashboard(settings.Sites); err != nil {
				return err
			}
		}
		s.replayer = httpapi.New(settings)
	}
	if s.o.HTTP.Enabled {
		s.http = &endpoint{title: "HTTPService", config: s.o.HTTP.Endpoint, socket: s.sockets.http, service: s.replayer}
		s.endpoints = append(s.endpoints, s.http)
	}
	if s.o.Metrics.Enabled {
		service := newMetricsService(s.metrics, s.access)
		if !s.o.HTTP.Enabled && s.jobs != nil {
			service.serveHealth(s.live, s.Ready)
		}
		s.exporter = &endpoint{title: "Metrics Service", config: s.o.Metrics.Endpoint, socket: s.sockets.metrics, service: service}
		s.endpoints = append(s.endpoints, s.exporter)
	}
	return nil
}

func (s *Server) grpcSettings(catalog *catalog) (grpcapi.Settings, error) {
	o := &s.o.GRPC
	set := grpcapi.Settings{
		Infer: s.repo, Catalog: catalog, Alloc: s.alloc, Live: s.live, Name: s.o.ID, Version: Version, Extensions: httpapi.Extensions(),
		Lifecycle: s.repo, Regions: s.regions, Tracer: s.tracer, Log: s.journal, Restricted: o.Restricted, Guard: s.access, Shares: s.shares, Load: &s.calls,
		MaxMessage: o.MaxMessage, InFlight: s.inFlight, NoFastPath: !s.o.HTTP.FastPath,
		Keepalive: keepalive.ServerParameters{
			Time: o.KeepaliveTime, Timeout: o.KeepaliveTimeout, MaxConnectionAge: o.MaxAge, MaxConnectionAgeGrace: o.MaxAgeGrace,
		},
		Pings: keepalive.EnforcementPolicy{MinTime: o.MinPingInterval, PermitWithoutStream: o.PermitWithoutCalls},
	}
	if o.MinPingInterval == 0 { // any number of pings
		set.Pings = keepalive.EnforcementPolicy{MinTime: 1, PermitWithoutStream: true}
	}
	var err error
	if set.Compression, err = grpcapi.ParseCompression(o.Compression); err != nil {
		return set, err
	}
	if set.ForwardHeaders, err = o.Forward(); err != nil {
		return set, err
	}
	if t := &o.TLS; t.Enabled {
		set.TLS, err = loadTLS(t, "gRPC", s.log, "h2")
	}
	return set, err
}

func (s *Server) httpSettings(catalog *catalog) (httpapi.Settings, error) {
	o := &s.o.HTTP
	set := httpapi.Settings{
		Infer: s.repo, Catalog: catalog, Alloc: s.alloc, Log: s.log, Live: s.live, Name: s.o.ID, Version: Version, Extensions: httpapi.Extensions(),
		Lifecycle: s.repo, Regions: s.regions, Tracer: s.tracer, Logs: s.journal, MaxInput: o.MaxInput, InFlight: s.inFlight, Restricted: o.Restricted,
		NoFastPath: !o.FastPath, NoTextAPI: !o.TextAPI, Tools: o.Tools, Guard: s.access, Shares: s.shares, Load: &s.calls,
	}
	if s.jobs != nil {
		set.Jobs, set.JobPaths = s.jobs.service, s.o.Jobs.Paths
		if s.jobs.later != nil {
			set.Requests = s.jobs.later
		}
	}
	var err error
	if set.Sites, err = sites.New(o.Origins, o.Hosts); err != nil {
		return set, fmt.Errorf("--http-allowed-origin, --http-allowed-host: %w", err)
	}
	if set.Forward, err = o.Forward(); err != nil {
		return set, err
	}
	if t := &o.TLS; t.Enabled {
		set.TLS, err = loadTLS(t, "HTTP", s.log, "h2", "http/1.1")
	}
	return set, err
}

// loadTLS reads the files for the encrypted connections of a protocol.
func loadTLS(t *options.TLS, title string, log *slog.Logger, protocols ...string) (*tls.Config, error) {
	files := certs.Files{Cert: t.ServerCert, Key: t.ServerKey}
	if t.Mutual {
		files.ClientCA = t.RootCert
	}
	c, err := certs.Load(files, log, protocols...)
	if err != nil {
		return nil, status.Errorf(status.InvalidArg, "unable to use the TLS files of %s: %w", title, err)
	}
	return c, nil
}
