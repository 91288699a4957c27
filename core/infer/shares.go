package infer

import (
	"hash/maphash"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

// Client is a client of the server, as Shares tells them apart. It is safe for concurrent use.
type Client struct {
	// Name is for errors, traces and metrics. It is not the key itself where that may be a secret.
	Name string
	// Weight is the client's part of what contended models execute, relative to other clients; above 0.
	Weight float64

	shares  *Shares
	listed  bool         // the options name the client's weight
	bytes   atomic.Int64 // in flight
	seen    atomic.Int64 // when its last request came, on the clock of telemetry.Now
	refused atomic.Pointer[atomic.Uint64]
}

// Newcomer is a client without any request. Predictions for it say what a client within its share may expect.
var Newcomer = &Client{Name: "(new)", Weight: 1}

// Refused counts a request of the client that was refused because the client is over its share.
func (c *Client) Refused() {
	n := c.refused.Load()
	if n == nil {
		n = c.shares.counter(c)
		c.refused.Store(n)
	}
	n.Add(1)
}

// ErrOverShare counts and returns the refusal of a request: the client has more work at a model or ensemble than its share, and others
// wait, too. The delay is how long its work there takes.
func (c *Client) ErrOverShare(what string, delay time.Duration) error {
	c.Refused()
	return &status.Error{
		Code: status.ResourceExhausted, Reason: status.OverShare, Step: what, RetryAfter: max(delay.Round(time.Millisecond), time.Millisecond),
		Msg: "client '" + c.Name + "' is over its share: too many of its requests are in '" + what + "', and other clients need it, too",
	}
}

// ClientSource is what tells clients apart.
type ClientSource uint8

// The sources.
const (
	// ByHeader is the value of a header, or of gRPC metadata. The client chooses it, unless a proxy sets it.
	ByHeader ClientSource = iota
	// ByIdentity is the name in the auth file.
	ByIdentity
	// ByAddress is the client's address, of IPv6 the first 64 bits.
	ByAddress
)

const (
	// mostClients bounds how many clients are told apart at a time. Others share one of restClients shares, by the hash of their keys.
	mostClients = 1024
	restClients = 16
	// forgetAfter is when a client without requests is forgotten, if there is no room for another one.
	forgetAfter = time.Minute
	// lookAgain is how often a full table is searched for clients to forget.
	lookAgain = time.Second
	// countedClients bounds how many clients without weights of their own are counted by name.
	countedClients = 32
	// contendedFor is how long after a request of another client a client is not alone.
	contendedFor = time.Second
)

// RestOfClients is the name of clients that are not told apart.
const RestOfClients = "(others)"

// Shares tells the clients of a server apart and knows their weights. A nil Shares tells none apart. It is safe for concurrent use.
//
// Memory is bounded: at most 1024 clients are told apart at a time, and a client that sends a new key with each request gets no more than
// that. Such a client has many shares, so keys must come from a source that it does not choose: an identity, an address, or a header that
// a proxy sets.
type Shares struct {
	source  ClientSource
	header  string
	secret  bool
	weights map[string]float64
	other   float64
	seed    maphash.Seed
	last    atomic.Pointer[Client] // whose request came last
	changed atomic.Int64           // when the last request came of another client than the one before

	mu       sync.RWMutex
	clients  map[string]*Client        // by key; guarded by mu
	rest     [restClients]*Client      // guarded by mu
	looked   int64                     // when a full table was searched; guarded by mu
	counters map[string]*atomic.Uint64 // of refused requests, by name; guarded by mu
	others   int                       // counters of clients without a weight of their own; guarded by mu
}

// NewShares returns a Shares. header is that of ByHeader. weights are by key, with "*" for the others, 1 without one.
func NewShares(source ClientSource, header string, weights map[string]float64) *Shares {
	s := &Shares{
		source: source, header: strings.ToLower(header), weights: maps.Clone(weights), other: 1, seed: maphash.MakeSeed(),
		clients: map[string]*Client{}, counters: map[string]*atomic.Uint64{},
	}
	s.secret = source == ByHeader && secretive(s.header)
	if w, ok := weights["*"]; ok {
		s.other = w
		delete(s.weights, "*")
	}
	for i := range s.rest {
		s.rest[i] = &Client{Name: RestOfClients, Weight: s.other, shares: s}
	}
	return s
}

// secretive reports whether the values of a header are secrets, by its name.
func secretive(header string) bool {
	for _, part := range []string{"auth", "cookie", "key", "secret", "session", "token"} {
		if strings.Contains(header, part) {
			return true
		}
	}
	return false
}

// ParseClientKey reads the source of keys: "header:NAME", "identity" or "address".
func ParseClientKey(text string) (source ClientSource, header string, err error) {
	kind, name, named := strings.Cut(text, ":")
	switch {
	case kind == "header" && named && name != "" && !strings.ContainsAny(name, " \t\r\n:,"):
		return ByHeader, name, nil
	case text == "identity":
		return ByIdentity, "", nil
	case text == "address":
		return ByAddress, "", nil
	}
	return 0, "", status.Errorf(status.InvalidArg, "'%s' tells no clients apart, expected header:NAME, identity or address", text)
}

// ParseClientWeights reads weights of clients: "alice=3,bob=0.5,*=1".
func ParseClientWeights(text string) (map[string]float64, error) {
	weights := map[string]float64{}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		i := strings.LastIndexByte(part, '=')
		if i <= 0 {
			return nil, status.Errorf(status.InvalidArg, "'%s' is no weight of a client, expected CLIENT=WEIGHT, for example alice=3", part)
		}
		w, err := strconv.ParseFloat(part[i+1:], 64)
		if err != nil || !(w >= 0.001 && w <= 1e6) {
			return nil, status.Errorf(status.InvalidArg, "the weight of client '%s' is '%s', expected a number from 0.001 to 1000000", part[:i], part[i+1:])
		}
		if _, twice := weights[part[:i]]; twice {
			return nil, status.Errorf(status.InvalidArg, "client '%s' has two weights, expected one", part[:i])
		}
		weights[part[:i]] = w
	}
	if len(weights) > mostClients/2 {
		return nil, status.Errorf(status.InvalidArg, "%d clients have weights, expected at most %d", len(weights), mostClients/2)
	}
	return weights, nil
}

// Header returns the name of the header that has the key, in lower case; empty for another source.
func (s *Shares) Header() string {
	if s == nil {
		return ""
	}
	return s.header
}

// Of returns the client of a request that comes now: header has the values of the header, identity the name in the auth file, and address
// the address with or without a port. Requests without a key are those of one client, whose name is "(none)".
//
// hot: no allocation for a known client.
func (s *Shares) Of(header []string, identity, address string, now int64) *Client {
	key := ""
	switch s.source {
	case ByHeader:
		if len(header) > 0 {
			key = header[0]
		}
	case ByIdentity:
		key = identity
	case ByAddress:
		key = hostOf(address)
	}
	s.mu.RLock()
	c := s.clients[key]
	s.mu.RUnlock()
	if c == nil {
		c = s.add(key, now)
	}
	c.seen.Store(now)
	if last := s.last.Load(); last != c {
		s.last.Store(c)
		if last != nil {
			s.changed.Store(now)
		}
	}
	return c
}

// hostOf returns the host of an address, of IPv6 the first 64 bits: a client has at least those to itself.
//
// hot: no allocation but of IPv6 addresses.
func hostOf(address string) string {
	host := address
	if i := strings.LastIndexByte(address, ':'); i >= 0 {
		host = address[:i]
	}
	if strings.HasPrefix(host, "[") {
		if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && !ip.Is4In6() {
			p, _ := ip.WithZone("").Prefix(64) // an IPv6 address has one
			return p.String()
		}
	}
	return host
}

// add returns the client of a key that is not known.
func (s *Shares) add(key string, now int64) *Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clients[key]; c != nil {
		return c
	}
	weight, listed := s.weights[key]
	if !listed {
		weight = s.other
		if len(s.clients) >= mostClients && !s.forget(now) {
			return s.rest[maphash.String(s.seed, key)%restClients]
		}
	}
	key = strings.Clone(key) // it may be a part of a request
	c := &Client{Name: s.name(key), Weight: weight, listed: listed, shares: s}
	s.clients[key] = c
	return c
}

// forget forgets clients that have had no request for a while, and reports whether there is room for another one. mu is held.
func (s *Shares) forget(now int64) bool {
	if now-s.looked < int64(lookAgain) {
		return false
	}
	s.looked = now
	maps.DeleteFunc(s.clients, func(_ string, c *Client) bool {
		return !c.listed && c.bytes.Load() == 0 && now-c.seen.Load() > int64(forgetAfter)
	})
	return len(s.clients) < mostClients
}

// name returns the name of a client by its key.
func (s *Shares) name(key string) string {
	switch {
	case key == "":
		return "(none)"
	case s.secret:
		return "#" + strconv.FormatUint(maphash.String(s.seed, key)>>32, 16)
	}
	if len(key) > 64 {
		key = key[:64]
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == '\'' || r == 0x7f || r == '\ufffd' {
			return '?'
		}
		return r
	}, key)
}

// Contended reports whether a client is not alone: another one has sent a request lately.
func (s *Shares) Contended(now int64) bool {
	at := s.changed.Load()
	return at != 0 && now-at < int64(contendedFor)
}

// Contended reports whether other clients have sent requests lately.
func (c *Client) Contended(now int64) bool { return c.shares.Contended(now) }

// counter returns the counter of a client's refused requests.
func (s *Shares) counter(c *Client) *atomic.Uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := c.Name
	if n := s.counters[name]; n != nil {
		return n
	}
	if !c.listed && name != RestOfClients {
		if s.others == countedClients {
			name = RestOfClients
		} else {
			s.others++
		}
	}
	n := s.counters[name]
	if n == nil {
		n = new(atomic.Uint64)
		s.counters[name] = n
	}
	return n
}

// Refusals calls add with the number of refused requests of each client, in the order of names. Clients whose weights the options name, and the
// first 32 others that were refused, are counted each, the rest together.
func (s *Shares) Refusals(add func(name string, n uint64)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, name := range slices.Sorted(maps.Keys(s.counters)) {
		add(name, s.counters[name].Load())
	}
}
