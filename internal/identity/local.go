package identity

import "net/netip"

// forwarded are the headers by which a proxy on this machine says that it passes on the request of another.
var forwarded = []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"}

// Local reports whether a client is a program of this machine and no proxy for another. header returns the value of a header by its
// canonical name, empty for none.
func Local(address string, header func(name string) string) bool {
	from, err := netip.ParseAddrPort(address)
	if err != nil || !from.Addr().Unmap().IsLoopback() {
		return false
	}
	for _, name := range forwarded {
		if header(name) != "" {
			return false
		}
	}
	return true
}

// remoteError is the error of a change by a client of another machine.
func remoteError(action string) error {
	return &RefusedError{Reason: Forbidden, Text: action +
		": clients of other machines may not change this server. --auth-file says who may, a restricted API asks for a key, and --allow-remote-control=true lets everybody"}
}
