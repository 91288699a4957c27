package infer

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

var (
	// ErrFull is wrapped by the refusal of a request that would exceed the limit now.
	ErrFull = errors.New("no room for another request")
	// ErrTooLarge is wrapped by the refusal of a request that alone exceeds the limit.
	ErrTooLarge = errors.New("too large")
)

// inFlightRetry is the suggested delay before a refused request is sent again.
const inFlightRetry = time.Second

// LeavingRetry is the suggested delay before a request that a stopping server refused is sent again: the connection is closed by then, and
// a new one reaches another server behind the same address, or the one that is started next.
const LeavingRetry = time.Second

// InFlight counts the bytes of the requests that all front ends are receiving, executing or responding to, and
// refuses requests beyond a limit. It does not count the memory that models allocate to execute. A nil InFlight
// counts nothing. It is safe for concurrent use.
//
// For example, with a limit of 1 GiB and 900 MiB in flight, a request of 200 MiB is refused with ErrFull, and a
// request of 2 GiB with ErrTooLarge.
type InFlight struct {
	limit   int64 // 0 for none
	bytes   atomic.Int64
	refused atomic.Uint64
	blocked atomic.Pointer[status.Error] // why every new request is refused; nil if none is
}

// NewInFlight returns an empty InFlight with a limit in bytes; 0 for none.
func NewInFlight(limit int64) *InFlight { return &InFlight{limit: max(limit, 0)} }

// Block refuses every new request with a reason, until Block(nil). Requests that are being received continue.
func (f *InFlight) Block(why error) {
	if why == nil {
		f.blocked.Store(nil)
		return
	}
	f.blocked.Store(&status.Error{Code: status.Unavailable, Reason: status.MemoryLimit, Msg: "no room for another request: " + why.Error(), Err: ErrFull, RetryAfter: inFlightRetry})
}

// Blocked returns the error of every new request; nil if they are not blocked.
func (f *InFlight) Blocked() error {
	if e := f.blocked.Load(); e != nil {
		return e
	}
	return nil
}

// Limit returns the limit in bytes, 0 for none.
func (f *InFlight) Limit() int64 {
	if f == nil {
		return 0
	}
	return f.limit
}

// Bytes returns the bytes in flight.
func (f *InFlight) Bytes() int64 { return f.bytes.Load() }

// Refused returns the number of refused requests.
func (f *InFlight) Refused() uint64 { return f.refused.Load() }

// Admit refuses a request of unknown size while the limit is reached.
//
// hot: no allocation unless it refuses.
func (f *InFlight) Admit() error {
	if f != nil && f.blocked.Load() != nil {
		f.refused.Add(1)
		return f.Blocked()
	}
	if f == nil || f.limit == 0 || f.bytes.Load() < f.limit {
		return nil
	}
	return f.refuse("no room for another request")
}

// Full reports whether new requests are refused, or less than an eighth of the limit is left.
func (f *InFlight) Full() bool {
	return f != nil && (f.blocked.Load() != nil || f.limit > 0 && f.bytes.Load() > f.limit-f.limit/8)
}

// Add counts n bytes without a check. Release must subtract them.
func (f *InFlight) Add(n int64) {
	if f != nil {
		f.bytes.Add(n)
	}
}

// Release subtracts n bytes that were counted before.
func (f *InFlight) Release(n int64) {
	if f != nil {
		f.bytes.Add(-n)
	}
}

// fits refuses n more bytes of a request that already has had bytes if there is no room for them now. It counts nothing.
func (f *InFlight) fits(had, n int64) error {
	if had == 0 && f != nil && f.blocked.Load() != nil {
		f.refused.Add(1)
		return f.Blocked()
	}
	switch {
	case f == nil || f.limit == 0:
		return nil
	case n > f.limit || had > f.limit-n:
		return f.tooLarge(had, n)
	case f.bytes.Load() > f.limit-n:
		return f.refuse(noRoom(n))
	}
	return nil
}

// overShare refuses n more bytes of a client whose bytes would then be more than three times what is free. So a single client has at most three
// quarters of the limit, and there is always room for others.
func (f *InFlight) overShare(c *Client, n int64) error {
	if f == nil || f.limit == 0 || n <= 0 {
		return nil
	}
	have, used := c.bytes.Load(), f.bytes.Load()
	if have == 0 || have+n <= 3*(f.limit-used-n) {
		return nil
	}
	f.refused.Add(1)
	c.Refused()
	return &status.Error{
		Code: status.ResourceExhausted, Reason: status.OverShare, Err: ErrFull, RetryAfter: inFlightRetry,
		Msg: fmt.Sprintf("%s: client '%s' is over its share, with %d of the %d bytes that are in flight, and the limit is %d; use --max-inflight-bytes to change it",
			noRoom(n), c.Name, have, used, f.limit),
	}
}

// take counts n more bytes of a request that already has had bytes, or refuses them.
func (f *InFlight) take(had, n int64) error {
	if f == nil {
		return nil
	}
	if err := f.fits(had, n); err != nil { // refused without changing the count, which others read
		return err
	}
	switch {
	case f.limit == 0:
		f.bytes.Add(n)
	case f.bytes.Add(n) > f.limit:
		f.bytes.Add(-n)
		return f.refuse(noRoom(n))
	}
	return nil
}

func noRoom(n int64) string { return fmt.Sprintf("no room for %d bytes of a request", n) }

func (f *InFlight) refuse(what string) error {
	f.refused.Add(1)
	text := fmt.Sprintf("%s: %d bytes are in flight, and the limit is %d; use --max-inflight-bytes to change it", what, f.bytes.Load(), f.limit)
	return &status.Error{Code: status.Unavailable, Reason: status.BytesInFlight, Msg: text, Err: ErrFull, RetryAfter: inFlightRetry}
}

func (f *InFlight) tooLarge(had, n int64) error {
	f.refused.Add(1)
	size := n
	if had <= math.MaxInt64-n {
		size += had
	}
	return status.Reasonf(status.TooLarge, "request of %d bytes is %w: at most %d bytes may be in flight; use --max-inflight-bytes to change it", size, ErrTooLarge, f.limit)
}

// Charge is the part of an InFlight that one request has. The zero Charge counts nothing. It is not safe for
// concurrent use.
type Charge struct {
	of     *InFlight
	client *Client // nil where clients are not told apart
	n      int64
}

// Charge returns an empty charge.
func (f *InFlight) Charge() Charge { return Charge{of: f} }

// For has the bytes count for a client, too. It must be called before any are charged.
func (c *Charge) For(client *Client) { c.client = client }

// Client returns the client whose bytes they are, nil if that is not known.
func (c *Charge) Client() *Client { return c.client }

// count adds n bytes, which may be negative, to those of the client.
func (c *Charge) count(n int64) {
	c.n += n
	if c.client != nil {
		c.client.bytes.Add(n)
	}
}

// Acquire charges n more bytes or refuses them: with Unavailable if other requests use the limit, with ResourceExhausted if the client is
// over its share of it, with InvalidArg and ErrTooLarge if the request alone exceeds it.
//
// hot: no allocation unless it refuses.
func (c *Charge) Acquire(n int64) error {
	if n <= 0 {
		return nil
	}
	if c.client != nil {
		if err := c.of.overShare(c.client, n); err != nil {
			return err
		}
	}
	err := c.of.take(c.n, n)
	if err == nil {
		c.count(n)
	}
	return err
}

// Fits refuses what Acquire would refuse, and charges nothing: the bytes are announced, and may never come.
//
// hot: no allocation unless it refuses.
func (c *Charge) Fits(n int64) error {
	if c.client != nil {
		if err := c.of.overShare(c.client, n); err != nil {
			return err
		}
	}
	return c.of.fits(c.n, max(n, 0))
}

// Add charges n bytes of a response. It never refuses them: the request is already executed.
func (c *Charge) Add(n int64) {
	if n > 0 {
		c.of.Add(n)
		c.count(n)
	}
}

// Bytes returns the charged bytes.
func (c *Charge) Bytes() int64 { return c.n }

// Shrink releases n of the bytes.
func (c *Charge) Shrink(n int64) {
	n = min(n, c.n)
	c.of.Release(n)
	c.count(-n)
}

// Release releases all bytes. It may be called more than once.
func (c *Charge) Release() {
	if c.n > 0 {
		c.of.Release(c.n)
		c.count(-c.n)
	}
	*c = Charge{}
}

// Move returns the charge and leaves c empty.
func (c *Charge) Move() Charge {
	m := *c
	*c = Charge{}
	return m
}

// API is a category of endpoints that can be restricted together.
type API uint8

// The categories, those that restrictions know. A front end has APINone for what belongs to none.
const (
	APIHealth API = iota
	APIMetadata
	APIInference
	APISharedMemory
	APIModelConfig
	APIModelRepository
	APIStatistics
	APITrace
	APILogging
	APIJobs
	APINone
)

var apiNames = [APINone]string{
	APIHealth:          "health",
	APIMetadata:        "metadata",
	APIInference:       "inference",
	APISharedMemory:    "shared-memory",
	APIModelConfig:     "model-config",
	APIModelRepository: "model-repository",
	APIStatistics:      "statistics",
	APITrace:           "trace",
	APILogging:         "logging",
	APIJobs:            "jobs",
}

// APINames returns the users' names of the categories, in order.
func APINames() []string { return slices.Clone(apiNames[:]) }

// String returns the users' name of the category, for example "model-repository".
func (a API) String() string {
	if a < APINone {
		return apiNames[a]
	}
	return "none"
}

// ParseAPI returns the category with a name.
func ParseAPI(name string) (API, bool) {
	i := slices.Index(apiNames[:], name)
	if i < 0 {
		return APINone, false
	}
	return API(i), true
}

// Restriction limits some categories to clients that send a key with its value, as an HTTP header or as gRPC metadata.
type Restriction struct {
	APIs       []API
	Key, Value string
}

// Met reports whether got is the required value. It compares in constant time: the value is a secret.
func (r *Restriction) Met(got string) bool {
	return subtle.ConstantTimeCompare([]byte(got), []byte(r.Value)) == 1
}

// Restrictions has the restriction of each category, nil for an unrestricted one.
type Restrictions [APINone]*Restriction

// Restrict returns the restrictions by category. Each category must be in at most one of them.
func Restrict(list []Restriction) (r Restrictions) {
	for i := range list {
		for _, a := range list[i].APIs {
			if a < APINone {
				r[a] = &list[i]
			}
		}
	}
	return r
}

// Of returns the restriction of a category, nil for none.
func (r *Restrictions) Of(a API) *Restriction {
	if a < APINone {
		return r[a]
	}
	return nil
}
