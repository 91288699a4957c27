package tutti

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/handover"
	"github.com/tutti-server/tutti/internal/options"
)

// Listener is a socket that listens already when a server opens.
type Listener struct {
	// Name is http, grpc or metrics. With any other name the service is the one that is configured for its port.
	Name string
	*net.TCPListener
}

// succession is how a server follows another one, and how it is followed. The lifecycle:
//
//  1. Open with --upgrade takes the sockets of the running server.
//  2. Start serves on them; the other server leaves.
//  3. A server that serves offers its sockets, until another process has them.
type succession struct {
	taken     *handover.Taken // until this server serves; nil without a server before it
	offer     *handover.Offer // nil when it cannot be offered
	successor atomic.Int64    // the process that has the sockets; 0 for none
	replaced  chan struct{}   // closed when there is a successor
}

// takeOver takes the sockets of the server that runs at the configured addresses, if there is one.
func (s *Server) takeOver(ctx context.Context, o *options.Options) ([]Listener, error) {
	if !o.Upgrade {
		return nil, nil
	}
	var addresses []string
	for _, e := range []*options.Endpoint{&o.HTTP.Endpoint, &o.GRPC.Endpoint, &o.Metrics.Endpoint} {
		if e.Enabled && e.Port != 0 {
			addresses = append(addresses, place(net.JoinHostPort(e.Address, strconv.Itoa(e.Port))))
		}
	}
	if len(addresses) == 0 {
		return nil, status.Errorf(status.InvalidArg, "--upgrade finds the running server by its ports: give --http-port, --grpc-port or --metrics-port, not 0")
	}
	taken, err := handover.Take(ctx, addresses...)
	if errors.Is(err, handover.ErrNone) {
		s.log.WarnContext(ctx, "--upgrade: no server runs here, this one starts as usual", slog.String("addresses", strings.Join(addresses, " ")))
		return nil, nil
	}
	if err != nil {
		return nil, status.Errorf(status.Unavailable, "--upgrade: %w", err)
	}
	s.taken = taken
	s.log.InfoContext(ctx, "taking over the ports of a running server, which serves until this one is ready", slog.Int("process", taken.PID))
	var list []Listener
	for _, x := range taken.Sockets {
		list = append(list, Listener{x.Name, x.Listener})
	}
	return list, nil
}

// ready has the server leave that this one follows. It fails if this one is not ready: then the other goes on.
func (s *Server) ready() error {
	if s.taken == nil || s.Ready() {
		return nil
	}
	var why []string
	for _, m := range s.Models() {
		if m.Err != nil {
			why = append(why, fmt.Sprintf("model '%s': %v", m.Name, m.Err))
		}
	}
	return status.Errorf(status.Unavailable, "--upgrade: this server is not ready, so the running one goes on. %s", strings.Join(why, "; "))
}

// giveUp tells the server that this one was to replace why it goes on. It has no effect without one.
func (s *Server) giveUp(why error) error {
	taken := s.taken
	s.taken = nil
	return taken.Fail(why)
}

// succeed completes the take-over of a server that serves now, and offers its sockets to the next.
func (s *Server) succeed() {
	if s.taken != nil {
		pid := s.taken.PID
		if err := s.taken.Ready(); err != nil {
			s.log.Warn("the server before this one was told to leave, and did not respond", slog.Int("process", pid), slog.Any("error", err))
		}
		s.taken = nil
		s.log.Info("took over from the running server", slog.Int("process", pid))
	}
	if !s.o.AllowUpgrade {
		return
	}
	set := handover.Settings{Leave: s.leaveTo, Failed: func(pid int, err error) {
		s.log.Warn("an upgrade failed, this server goes on", slog.Int("process", pid), slog.String("reason", status.Line(err.Error())))
	}}
	at := ""
	for _, e := range []*endpoint{s.http, s.grpc, s.exporter} {
		if e == nil {
			continue
		}
		if at == "" {
			at = place(e.address())
		}
		set.Sockets = append(set.Sockets, handover.Socket{Name: e.identity(), Listener: e.listener.TCPListener})
	}
	if at == "" {
		return
	}
	var err error
	if s.offer, err = handover.Open(at, set); err != nil {
		s.log.Warn("tutti serve --upgrade cannot replace this server", slog.String("error", err.Error()))
	}
}

// leaveTo stops accepting: process pid serves.
func (s *Server) leaveTo(pid int) {
	for _, e := range s.endpoints {
		if err := e.listener.pause(); err != nil {
			s.log.Warn("closing a socket", slog.Any("error", err))
		}
	}
	s.successor.Store(int64(pid))
	s.log.Info("another process serves, this one completes its requests and ends", slog.Int("process", pid))
	close(s.replaced)
}

// Successor returns the process that has replaced this server, which Wait then returns from; 0 if there is none.
func (s *Server) Successor() int { return int(s.successor.Load()) }

// Upgrade starts a command that is `tutti serve --upgrade`, to replace this server. It does not wait for that. A command that
// fails is logged, and this server goes on. The command outlives ctx.
func (s *Server) Upgrade(ctx context.Context, command *exec.Cmd) {
	s.log.InfoContext(ctx, "starting the process that replaces this one", slog.String("program", command.Path))
	if err := command.Start(); err != nil {
		s.log.WarnContext(ctx, "an upgrade failed, this server goes on", slog.String("reason", err.Error()))
		return
	}
	go func() {
		if err := command.Wait(); s.Successor() != command.Process.Pid {
			s.log.WarnContext(ctx, "the process of an upgrade ended, this server goes on", slog.Int("process", command.Process.Pid), slog.Any("end", err))
		}
	}()
}

// identity is what a successor recognizes the socket by.
func (e *endpoint) identity() string { return e.socket.name + "=" + place(e.address()) }

// place returns an address as processes agree on it: all addresses of the machine are written in several ways.
func place(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return "*:" + port
	}
	return address
}

// adopt returns the given socket for a service, and removes it from the list; nil if there is none.
func adopt(name string, e *options.Endpoint, given *[]Listener) *net.TCPListener {
	configured := name + "=" + place(net.JoinHostPort(e.Address, strconv.Itoa(e.Port)))
	port := func(l Listener) int { return l.Addr().(*net.TCPAddr).Port } //nolint:errcheck,forcetypeassert // of a TCP listener
	known := func(l Listener) bool {
		return slices.Contains([]string{nameHTTP, nameGRPC, nameMetrics}, l.Name) || strings.Contains(l.Name, "=")
	}
	for _, fits := range []func(Listener) bool{
		func(l Listener) bool { return l.Name == name || l.Name == configured },
		func(l Listener) bool { return !known(l) && port(l) == e.Port },
	} {
		if i := slices.IndexFunc(*given, fits); i >= 0 {
			l := (*given)[i]
			*given = slices.Delete(*given, i, i+1)
			e.Port = port(l)
			if l.Name != configured {
				e.Address = l.Addr().(*net.TCPAddr).IP.String() //nolint:errcheck,forcetypeassert // of a TCP listener
			}
			return l.TCPListener
		}
	}
	return nil
}

// dropRest closes the sockets of a running server that this one does not need. Others that no service has are an error: what
// passes them expects that they are served.
func dropRest(rest []Listener) (err error) {
	var strange []string
	for _, l := range rest {
		if !strings.Contains(l.Name, "=") {
			strange = append(strange, fmt.Sprintf("'%s' at %s", l.Name, l.Addr()))
		}
		err = errors.Join(err, l.Close())
	}
	if len(strange) > 0 {
		return status.Errorf(status.InvalidArg, "no service is for the socket %s: name it http, grpc or metrics with FileDescriptorName, or set the port of the service", strings.Join(strange, ", "))
	}
	return err
}
