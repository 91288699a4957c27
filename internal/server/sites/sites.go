// Package sites decides which web pages may use a server. A browser sends requests for whatever page it shows: a page of another site
// could load a model at a server on localhost, and a site whose name leads to this machine (DNS rebinding) could read the dashboard.
// Programs other than browsers send no Origin, and are not concerned.
//
//	p, err := sites.New([]string{"https://tools.example"}, []string{"tutti.example"})
//	err = p.Change(r) // of a request that changes something
//	err = p.Page(r)   // of a request for the dashboard
package sites

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// AnyHost permits every host.
const AnyHost = "*"

// Policy is a list of permitted origins and hosts. A nil Policy permits the same site at the addresses and names of this machine. It is
// safe for concurrent use.
type Policy struct {
	cross *http.CrossOriginProtection
	hosts []string // in lower case
}

// New returns a policy. Origins are those of pages of other sites that may change the server, for example "https://tools.example"; hosts are
// the names under which browsers reach it, without a port, besides localhost, the machine's name and every address. AnyHost permits all.
func New(origins, hosts []string) (*Policy, error) {
	p := &Policy{cross: http.NewCrossOriginProtection()}
	for _, o := range origins {
		if err := p.cross.AddTrustedOrigin(o); err != nil {
			return nil, fmt.Errorf("the origin '%s' is invalid: %w; expected SCHEME://HOST or SCHEME://HOST:PORT", o, err)
		}
	}
	for _, h := range hosts {
		if h == "" || h != AnyHost && hostOf(h) != strings.ToLower(h) || strings.ContainsAny(h, "/ ") {
			return nil, fmt.Errorf("the host '%s' is invalid, expected a name without scheme and port, or %s", h, AnyHost)
		}
		p.hosts = append(p.hosts, strings.ToLower(h))
	}
	if name, err := os.Hostname(); err == nil {
		p.hosts = append(p.hosts, strings.ToLower(name))
	}
	return p, nil
}

// Change returns why a request may not change the server: a page of another site has sent it. Requests that are safe by their method
// change nothing.
func (p *Policy) Change(r *http.Request) error {
	if err := p.protection().Check(r); err != nil {
		return errorOf(r)
	}
	if r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Site") == "" {
		return nil // not a browser
	}
	return p.host(r)
}

// Page returns why a request may not see the dashboard: a browser has reached the server by a name that is not its own, or as Change.
func (p *Policy) Page(r *http.Request) error {
	if err := p.host(r); err != nil {
		return err
	}
	return p.Change(r)
}

func (p *Policy) protection() *http.CrossOriginProtection {
	if p == nil {
		return http.NewCrossOriginProtection()
	}
	return p.cross
}

func errorOf(r *http.Request) error {
	from := r.Header.Get("Origin")
	if from == "" || from == "null" {
		return errors.New("a page of another site may not change this server")
	}
	return fmt.Errorf("a page of another site may not change this server: its origin is '%s'; --http-allowed-origin=%s permits it", from, from)
}

// host returns why the host of a request is not one of the server's.
func (p *Policy) host(r *http.Request) error {
	h := hostOf(r.Host)
	switch _, err := netip.ParseAddr(h); {
	case err == nil, h == "", h == "localhost", strings.HasSuffix(h, ".localhost"):
		return nil
	case p != nil && (slices.Contains(p.hosts, h) || slices.Contains(p.hosts, AnyHost)):
		return nil
	}
	return fmt.Errorf("'%s' is not a name of this server; --http-allowed-host=%s permits it", h, h)
}

// hostOf returns a host in lower case, without its port.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}
