// Package exposure says what of a server is open to whom, from its options and its auth file. It starts nothing.
//
//	list, err := exposure.Of(o)
//	exposure.Write(os.Stdout, list)
package exposure

import (
	"cmp"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/identity"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/table"
)

// Entry says who may use a part of the server at one of its ports.
type Entry struct {
	Part string `json:"part"` // for example "load and unload models"
	Port string `json:"port"` // http, grpc or metrics
	At   string `json:"at"`   // the address, for example "0.0.0.0:8000"; empty if the port is closed
	Who  string `json:"who"`  // begins with one of the constants below
}

// The beginnings of Who. Role is followed by the names of roles, Key by the header that opens the part.
const (
	All      = "open to all"
	Loopback = "loopback only"
	Closed   = "closed"
	Role     = "role "
	Key      = "header "
)

const dashboardToken = "token of --dashboard-token"

// part is a row of the table.
type part struct {
	name   string
	group  identity.Group
	change bool // it changes the server, which is closed to other machines without an auth file
	// off returns why it is closed at every port, empty if it is not.
	off func(o *options.Options) string
	// token is set for what needs the dashboard's token without an auth file.
	token bool
	ports []string // nil for http and grpc
}

const portHTTP, portGRPC, portMetrics = "http", "grpc", "metrics"

func parts() []part {
	group := identity.GroupOf
	return []part{
		{name: "inference", group: group(infer.APIInference)},
		{name: "health", group: group(infer.APIHealth)},
		{name: "metadata of models", group: group(infer.APIMetadata)},
		{name: "configurations of models", group: group(infer.APIModelConfig)},
		{name: "statistics", group: group(infer.APIStatistics)},
		{name: "index of models", group: group(infer.APIModelRepository)},
		{name: "load and unload models", group: group(infer.APIModelRepository), change: true, off: noControl},
		{name: "trace settings", group: group(infer.APITrace), change: true},
		{name: "log settings", group: group(infer.APILogging), change: true},
		{name: "shared memory", group: group(infer.APISharedMemory), change: true, off: unless("--allow-client-shm=false", func(o *options.Options) bool { return o.ClientSHM })},
		{name: "jobs", group: group(infer.APIJobs), off: unless("without --jobs", func(o *options.Options) bool { return o.Jobs.Enabled }), ports: []string{portHTTP}},
		{name: "dashboard", group: identity.GroupDashboard, off: noDashboard, ports: []string{portHTTP}},
		{name: "changes in the dashboard", group: group(infer.APIModelRepository), off: noDashboard, token: true, ports: []string{portHTTP}},
		{name: "capture of tensors", group: identity.GroupCapture, off: noCapture, token: true, ports: []string{portHTTP}},
		{name: "metrics", group: identity.GroupMetrics, ports: []string{portMetrics}},
	}
}

// unless returns a function for part.off with one reason.
func unless(reason string, on func(o *options.Options) bool) func(o *options.Options) string {
	return func(o *options.Options) string {
		if on(o) {
			return ""
		}
		return reason
	}
}

func noControl(o *options.Options) string {
	if o.ControlMode == options.ModeExplicit {
		return ""
	}
	return "--model-control-mode=" + o.ControlMode
}

func noDashboard(o *options.Options) string {
	if o.Dashboard.Enabled {
		return ""
	}
	return "--dashboard=false"
}

func noCapture(o *options.Options) string {
	if o.Capture.Bytes == 0 {
		return "nothing is captured"
	}
	return noDashboard(o)
}

// port is a port of the server.
type port struct {
	options.Endpoint

	name       string
	tls        options.TLS
	restricted infer.Restrictions
}

// Of returns what of a server with these options is open to whom. It fails if there is an auth file that a server would not start with.
func Of(o *options.Options) ([]Entry, error) {
	var rights *identity.Rights
	if o.Access.File != "" {
		set := identity.Settings{File: o.Access.File}
		if o.Namespacing {
			set.Namespaces = func(string, bool) []string { return nil }
		}
		var err error
		if rights, err = identity.ReadRights(set); err != nil {
			return nil, err
		}
	}
	ports := map[string]*port{
		portHTTP:    {o.HTTP.Endpoint, portHTTP, o.HTTP.TLS, infer.Restrict(o.HTTP.Restricted)},
		portGRPC:    {o.GRPC.Endpoint, portGRPC, o.GRPC.TLS, infer.Restrict(o.GRPC.Restricted)},
		portMetrics: {o.Metrics.Endpoint, portMetrics, options.TLS{}, infer.Restrictions{}},
	}
	var list []Entry
	for _, p := range parts() {
		names := p.ports
		if names == nil {
			names = []string{portHTTP, portGRPC}
		}
		for _, name := range names {
			list = append(list, p.entry(o, rights, ports[name]))
		}
	}
	return list, nil
}

// entry returns who may use a part at a port.
func (p *part) entry(o *options.Options, rights *identity.Rights, at *port) Entry {
	e := Entry{Part: p.name, Port: at.name}
	if !at.Enabled {
		e.Who = Closed + " (" + at.name + " is off)"
		return e
	}
	e.At = net.JoinHostPort(cmp.Or(at.Address, "0.0.0.0"), strconv.Itoa(at.Port))
	if p.off != nil {
		if reason := p.off(o); reason != "" {
			e.Who = Closed + " (" + reason + ")"
			return e
		}
	}
	key := ""
	if r := at.restricted.Of(infer.API(p.group)); r != nil && p.group < identity.GroupDashboard {
		key = Key + r.Key
	}
	switch {
	case rights != nil:
		e.Who = p.byRole(o, rights, at)
		if key != "" {
			e.Who += ", and " + key
		}
	case p.token && o.Dashboard.Token == "":
		e.Who = Closed + " (without --dashboard-token)"
	case p.token && key != "":
		e.Who = dashboardToken + ", and " + key
	case p.token:
		e.Who = dashboardToken
	case key != "":
		e.Who = key
	case p.change && !o.Access.RemoteControl:
		e.Who = Loopback
	default:
		e.Who = at.everybody()
	}
	if p.name == "jobs" {
		e.Who += jobFiles(o)
	}
	return e
}

// byRole returns who may use the part by the auth file.
func (p *part) byRole(o *options.Options, rights *identity.Rights, at *port) string {
	if !p.token && rights.All(p.group) {
		return at.everybody()
	}
	who := Closed + " (no role has '" + p.group.String() + "')"
	if list := rights.Of(p.group); len(list) > 0 {
		who = Role + strings.Join(list, ", ")
	}
	if o.Dashboard.Token != "" && (p.token || p.group == identity.GroupDashboard) {
		who += ", or " + dashboardToken
	}
	return who
}

// everybody returns who reaches a port.
func (p *port) everybody() string {
	who := All
	if ip, err := netip.ParseAddr(strings.Trim(p.Address, "[]")); p.Address == "localhost" || err == nil && ip.IsLoopback() {
		who = Loopback
	}
	if p.tls.Enabled && p.tls.Mutual {
		who += " with a certificate of " + p.tls.RootCert
	}
	return who
}

// jobFiles says which files jobs may name.
func jobFiles(o *options.Options) string {
	if len(o.Jobs.Paths) > 0 {
		return "; files in " + strings.Join(o.Jobs.Paths, ", ")
	}
	return "; any file, for clients of this machine only"
}

// Write writes a table. Ports with the same audience share a row.
func Write(w io.Writer, list []Entry) {
	rows := [][]string{{"PART", "AT", "WHO"}}
	for i, e := range list {
		at := strings.TrimSpace(e.Port + " " + e.At)
		if i > 0 && list[i-1].Part == e.Part && list[i-1].Who == e.Who {
			last := rows[len(rows)-1]
			last[1] += ", " + at
			continue
		}
		rows = append(rows, []string{e.Part, at, e.Who})
	}
	table.Left(w, rows)
}
