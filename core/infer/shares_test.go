package infer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// TestClientsBySource checks what makes requests those of one client, and the names that errors and metrics show.
func TestClientsBySource(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		key, header, identity, address, want string
	}{
		{"header:X-Client", "alice", "id", "10.0.0.1:5", "alice"},
		{"header:X-Client", "", "id", "10.0.0.1:5", "(none)"},
		{"header:X-Client", "a'\n\x00b", "", "", "a???b"},
		{"header:X-Client", strings.Repeat("x", 100), "", "", strings.Repeat("x", 64)},
		{"identity", "alice", "ci", "10.0.0.1:5", "ci"},
		{"identity", "alice", "", "10.0.0.1:5", "(none)"},
		{"address", "alice", "ci", "10.0.0.1:5", "10.0.0.1"},
		{"address", "", "", "[2001:db8:1:2:3:4:5:6]:5", "2001:db8:1:2::/64"},
		{"address", "", "", "[fe80::1%eth0]:5", "fe80::/64"},
		{"address", "", "", "", "(none)"},
	} {
		source, header, err := infer.ParseClientKey(c.key)
		if err != nil {
			t.Fatal(err)
		}
		s := infer.NewShares(source, header, nil)
		first, again := s.Of([]string{c.header}, c.identity, c.address, 1), s.Of([]string{c.header}, c.identity, c.address, 2)
		if first != again || first.Name != c.want || first.Weight != 1 {
			t.Errorf("%s of %q, %q, %q: %s, want %s", c.key, c.header, c.identity, c.address, first.Name, c.want)
		}
	}
	s := infer.NewShares(infer.ByHeader, "X-Api-Key", map[string]float64{"top-secret": 2, "*": 0.5})
	secret, other := s.Of([]string{"top-secret"}, "", "", 1), s.Of([]string{"b"}, "", "", 1)
	if secret.Weight != 2 || other.Weight != 0.5 || strings.Contains(secret.Name, "secret") || secret.Name == other.Name {
		t.Errorf("clients are %s with %v and %s with %v, want their weights and no secrets", secret.Name, secret.Weight, other.Name, other.Weight)
	}
	a, b := s.Of(nil, "", "[2001:db8::1]:1", 1), s.Of(nil, "", "[2001:db8::2]:1", 1)
	if a != b {
		t.Error("requests without the header are of two clients")
	}
}

// TestManyClients checks that a client which sends a new key with each request takes bounded memory and no share of those that are known,
// and that clients are forgotten when they have been away.
func TestManyClients(t *testing.T) {
	t.Parallel()
	s := infer.NewShares(infer.ByHeader, "client", map[string]float64{"listed": 1})
	of := func(key string, now time.Duration) *infer.Client { return s.Of([]string{key}, "", "", int64(now)) }
	known, distinct := of("known", 1), map[*infer.Client]bool{}
	for i := range 20_000 {
		distinct[of(fmt.Sprint("random", i), 2)] = true
	}
	if len(distinct) > 1100 {
		t.Errorf("%d clients are told apart", len(distinct))
	}
	if of("known", 3) != known {
		t.Error("a known client is forgotten while others come")
	}
	if c := of("listed", 4); c.Name != "listed" {
		t.Errorf("a client whose weight the options name is %s", c.Name)
	}
	if c := of("late", 5); c.Name != infer.RestOfClients {
		t.Errorf("one client more is %s, want the rest", c.Name)
	}
	if c := of("late", 2*time.Minute); c.Name != "late" {
		t.Errorf("after two minutes it is %s", c.Name)
	}
	for c := range distinct {
		c.Refused()
	}
	names := map[string]uint64{}
	s.Refusals(func(name string, n uint64) { names[name] = n })
	if len(names) != 33 || names[infer.RestOfClients] != uint64(len(distinct)-32) {
		t.Errorf("%d names are counted, %d refusals of the rest, want 33 and %d", len(names), names[infer.RestOfClients], len(distinct)-32)
	}
}

// TestContended checks that a client is alone unless another one has sent a request within a second.
func TestContended(t *testing.T) {
	t.Parallel()
	s := infer.NewShares(infer.ByHeader, "client", nil)
	a := s.Of([]string{"a"}, "", "", 1)
	s.Of([]string{"a"}, "", "", 2)
	if a.Contended(2) {
		t.Error("a client alone is contended")
	}
	s.Of([]string{"b"}, "", "", 3)
	s.Of([]string{"a"}, "", "", 4)
	if !a.Contended(5) || a.Contended(int64(2*time.Second)) {
		t.Error("a client is contended for a second after the request of another one")
	}
}

// TestBytesOfClients checks that a client which fills the limit of bytes is refused before others are, and that its bytes are given back.
func TestBytesOfClients(t *testing.T) {
	t.Parallel()
	f := infer.NewInFlight(1000)
	s := infer.NewShares(infer.ByHeader, "client", nil)
	flood, b := s.Of([]string{"flood"}, "", "", 1), s.Of([]string{"b"}, "", "", 1)
	var charges []infer.Charge
	var err error
	for range 20 {
		c := f.Charge()
		c.For(flood)
		if err = c.Acquire(100); err != nil {
			break
		}
		charges = append(charges, c)
	}
	if d := status.DetailsOf(err); d.Reason != status.OverShare || d.RetryAfter <= 0 || !errors.Is(err, infer.ErrFull) || !strings.Contains(err.Error(), "client 'flood' is over its share") {
		t.Errorf("the flood gets %v", err)
	}
	if n := f.Bytes(); n != 700 {
		t.Errorf("the flood has %d bytes of 1000, want 700", n)
	}
	c := f.Charge()
	c.For(b)
	if err := c.Acquire(200); err != nil {
		t.Errorf("another client: %v", err)
	}
	c.Release()
	for i := range charges {
		charges[i].Release()
	}
	big := f.Charge()
	big.For(flood)
	if err := big.Fits(1000); err != nil {
		t.Errorf("one request as large as the limit: %v", err)
	}
	if err := big.Acquire(1000); err != nil || f.Bytes() != 1000 {
		t.Errorf("one request as large as the limit: %v, %d bytes are in flight", err, f.Bytes())
	}
	big.Release()
}
