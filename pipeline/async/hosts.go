package async

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/status"
)

// hosts is the allow list of callbacks.
type hosts struct {
	names    []hostPattern
	networks []netip.Prefix // that callbacks may reach although they are not public
	text     []string
}

// hostPattern is a name of a host, with stars for any characters but dots, and a port.
type hostPattern struct{ name, port string }

// parseHosts parses the values of --callback-host: HOST or HOST:PORT, where the first labels of HOST may be "*", an address, or a
// network such as 10.0.0.0/8.
func parseHosts(list []string) (*hosts, error) {
	h := &hosts{text: list}
	for _, text := range list {
		if p, err := netip.ParsePrefix(text); err == nil {
			h.networks = append(h.networks, p.Masked())
			continue
		}
		name, port := text, ""
		if host, after, err := net.SplitHostPort(text); err == nil {
			name, port = host, after
		}
		name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
		if a, err := netip.ParseAddr(name); err == nil {
			h.networks = append(h.networks, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
			name = a.Unmap().String()
		} else if name == "" || name == "*" || strings.Trim(port, "0123456789") != "" || strings.ContainsAny(name, "/?[]\\@: ") {
			return nil, status.Errorf(status.InvalidArg, "--callback-host: '%s' is no host; expected a name as hooks.example.com or *.example.com, "+
				"with :PORT if it is not that of the scheme, an address, or a network as 10.0.0.0/8", text)
		}
		h.names = append(h.names, hostPattern{name, port})
	}
	return h, nil
}

// check returns an error for a URL that callbacks may not use.
func (h *hosts) check(text string) error {
	refuse := func(format string, args ...any) error {
		return status.Errorf(status.InvalidArg, "the callback URL '%s' "+format, append([]any{text}, args...)...)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || len(text) > maxURL:
		return refuse("is not valid; expected at most %d bytes, for example https://hooks.example.com/done", maxURL)
	case u.Scheme != "http" && u.Scheme != "https":
		return refuse("has the scheme '%s', expected http or https", u.Scheme)
	case u.Host == "" || u.User != nil || u.Fragment != "":
		return refuse("needs a host, and may have neither a user nor a fragment")
	}
	if !h.allows(u) {
		return refuse("has a host that callbacks may not use (%s): the server's option --callback-host adds one", strings.Join(h.text, ", "))
	}
	return nil
}

// allows reports whether the host and port of a URL are in the list. Without a port an entry allows that of the scheme.
func (h *hosts) allows(u *url.URL) bool {
	name, port := strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")), u.Port()
	usual := port == "" || port == map[string]string{"http": "80", "https": "443"}[u.Scheme]
	if a, err := netip.ParseAddr(name); err == nil {
		name = a.Unmap().String()
		if usual && h.inNetworks(a.Unmap()) {
			return true
		}
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return slices.ContainsFunc(h.names, func(p hostPattern) bool {
		return (p.port == port || p.port == "" && usual) && p.matches(name)
	})
}

// matches reports whether a name has the labels of the pattern. A star stands for one label or, in front, for one or more.
func (p *hostPattern) matches(name string) bool {
	if rest, ok := strings.CutPrefix(p.name, "*."); ok && strings.HasSuffix(name, "."+rest) && !strings.Contains(rest, "*") {
		return true
	}
	ok, err := path.Match(strings.ReplaceAll(p.name, ".", "/"), strings.ReplaceAll(name, ".", "/"))
	return ok && err == nil
}

func (h *hosts) inNetworks(a netip.Addr) bool {
	return slices.ContainsFunc(h.networks, func(n netip.Prefix) bool { return n.Contains(a) })
}

// reserved are networks that are not public, and that netip does not know as such.
var reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("fec0::/10"),
}

// dialable returns an error for an address that callbacks may not connect to: names are resolved by others, and may lead to
// this machine or into its network.
func (h *hosts) dialable(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("the address %s cannot be read: %w", address, err)
	}
	a := at.Addr().Unmap().WithZone("")
	public := a.IsGlobalUnicast() && !a.IsPrivate() && !slices.ContainsFunc(reserved, func(n netip.Prefix) bool { return n.Contains(a) })
	if public || h.inNetworks(a) {
		return nil
	}
	return fmt.Errorf("the host has the address %s, which is not public: --callback-host=%s allows it", a, a)
}
