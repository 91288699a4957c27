package rpc

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/keepalive"
)

const (
	forever         = time.Duration(math.MaxInt64)
	defaultPingTime = 2 * time.Hour
	defaultPingWait = 20 * time.Second
	defaultPingGap  = 5 * time.Minute
	// idlePingGap is how long a client without calls must wait between pings, unless the policy permits them.
	idlePingGap = 2 * time.Hour
	// maxStrikes is how many early pings in a row are tolerated.
	maxStrikes = 2
	// drainWait is how long a draining connection accepts calls that its client sends before it has got GOAWAY.
	drainWait = 5 * time.Second
)

func completeKeepalive(p *keepalive.ServerParameters, e *keepalive.EnforcementPolicy) {
	orDefault(&p.MaxConnectionIdle, forever)
	orDefault(&p.MaxConnectionAge, forever)
	orDefault(&p.MaxConnectionAgeGrace, forever)
	orDefault(&p.Time, defaultPingTime)
	p.Time = max(p.Time, time.Second)
	orDefault(&p.Timeout, defaultPingWait)
	orDefault(&e.MinTime, defaultPingGap)
}

// keeper pings a client, and ends a connection that is idle, old or dead.
type keeper struct {
	c     *conn
	timer *time.Timer
	read  atomic.Int64 // when bytes came last, in ns

	// Guarded by the connection's mu.
	since     time.Time // when the connection became idle; zero if it is not
	drainAt   time.Time // when the connection is so old that it is drained; zero for never
	closeAt   time.Time // when it is closed after that; zero for never
	pinged    time.Time // when our ping was sent; zero if none is unanswered
	drained   *time.Timer
	announced bool // the client was sent GOAWAY; its calls are served until it knows

	// Of the leader.
	last    time.Time // of the client's pings
	strikes int
}

// start starts the timer.
func (k *keeper) start(c *conn) {
	k.c = c
	now, p := time.Now(), &c.srv.set.Keepalive
	k.read.Store(now.UnixNano())
	c.mu.Lock()
	defer c.mu.Unlock()
	k.since = now
	if age := p.MaxConnectionAge; age != forever {
		// Connections that began together do not end together.
		if spread := int64(age / 10); spread > 0 {
			age += time.Duration(rand.Int64N(2*spread) - spread)
		}
		k.drainAt = now.Add(age)
	}
	k.timer = time.AfterFunc(k.next(now), k.look)
}

// busy and idle note whether there are calls. mu must be held.
func (k *keeper) busy() { k.since = time.Time{} }
func (k *keeper) idle() { k.since = time.Now() }

// stop stops the timers. mu must be held.
func (k *keeper) stop() {
	if k.timer != nil {
		k.timer.Stop()
	}
	if k.drained != nil {
		k.drained.Stop()
	}
}

// next returns the time until the next look. mu must be held.
func (k *keeper) next(now time.Time) time.Duration {
	p := &k.c.srv.set.Keepalive
	wait := time.Unix(0, k.read.Load()).Add(p.Time).Sub(now)
	if !k.pinged.IsZero() {
		wait = k.pinged.Add(p.Timeout).Sub(now)
	}
	if idle := p.MaxConnectionIdle; idle != forever && !k.announced {
		if k.since.IsZero() {
			wait = min(wait, idle)
		} else {
			wait = min(wait, k.since.Add(idle).Sub(now))
		}
	}
	for _, t := range []time.Time{k.drainAt, k.closeAt} {
		if !t.IsZero() {
			wait = min(wait, t.Sub(now))
		}
	}
	return max(wait, time.Millisecond)
}

// look does what is due.
func (k *keeper) look() {
	c, now, p := k.c, time.Now(), &k.c.srv.set.Keepalive
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	if !k.pinged.IsZero() && k.read.Load() > k.pinged.UnixNano() {
		k.pinged = time.Time{}
	}
	switch {
	case !k.closeAt.IsZero() && !now.Before(k.closeAt), !k.pinged.IsZero() && now.Sub(k.pinged) >= p.Timeout:
		c.closeLocked()
		return
	case !k.drainAt.IsZero() && !now.Before(k.drainAt):
		k.drainAt = time.Time{}
		if grace := p.MaxConnectionAgeGrace; grace != forever {
			k.closeAt = now.Add(grace)
		}
		c.drainLocked("max_age")
	case !k.since.IsZero() && now.Sub(k.since) >= p.MaxConnectionIdle:
		c.drainLocked("max_idle")
	case k.pinged.IsZero() && now.Sub(time.Unix(0, k.read.Load())) >= p.Time:
		k.pinged = now
		c.appendPing(false, make([]byte, pingSize))
	}
	k.timer.Reset(k.next(now)) // before flush, which may close the connection, or wait for the client
	c.flush()
}

const pingSize = 8

// drainPing is the ping behind GOAWAY: when it is acknowledged, the client has got GOAWAY.
var drainPing = [pingSize]byte{'d', 'r', 'a', 'i', 'n', 'i', 'n', 'g'}

// pingFrame acknowledges a ping. A client that pings too often gets GOAWAY.
func (c *conn) pingFrame(flags http2.Flags, id uint32, p []byte) error {
	if id != 0 {
		return failure(http2.ErrCodeProtocol, "PING of stream %d", id)
	}
	if len(p) != pingSize {
		return failure(http2.ErrCodeFrameSize, "PING has %d bytes", len(p))
	}
	k, e := &c.keep, &c.srv.set.Pings
	c.mu.Lock()
	defer c.mu.Unlock()
	if flags.Has(http2.FlagPingAck) {
		if k.announced && [pingSize]byte(p) == drainPing {
			c.leaveLocked()
		}
		return nil
	}
	c.appendPing(true, p)
	now := time.Now()
	gap := e.MinTime
	if len(c.streams) == 0 && !e.PermitWithoutStream {
		gap = idlePingGap
	}
	switch {
	case c.sent:
		c.sent, k.strikes = false, 0
	case now.Sub(k.last) < gap:
		k.strikes++
	}
	k.last = now
	if k.strikes > maxStrikes {
		return failure(http2.ErrCodeEnhanceYourCalm, "too_many_pings")
	}
	return nil
}

// drain has the connection end when its calls are complete. Calls that the client has sent before it gets GOAWAY are served.
func (c *conn) drain(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drainLocked(reason)
	c.flush()
}

// drainLocked is drain while mu is held; it does not flush.
func (c *conn) drainLocked(reason string) {
	k := &c.keep
	if k.announced || c.closed {
		return
	}
	k.announced, k.since = true, time.Time{}
	c.appendGoAway(maxWindow, http2.ErrCodeNo, reason)
	c.appendPing(false, drainPing[:])
	k.drained = time.AfterFunc(drainWait, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.leaveLocked()
		c.flush()
	})
}

// leaveLocked tells the client which call is the last one that is served. mu must be held.
func (c *conn) leaveLocked() {
	if c.draining {
		return
	}
	c.draining = true
	c.keep.drained.Stop()
	c.appendGoAway(c.maxID, http2.ErrCodeNo, "")
	c.depart()
}

// depart closes a draining connection without calls, when everything is written and the client had time to read it. mu must be held.
func (c *conn) depart() {
	if !c.draining || c.leaving || c.closed || len(c.streams) > 0 || len(c.out) > 0 || c.writing {
		return
	}
	c.leaving = true
	c.keep.drained = time.AfterFunc(lingerTime, func() { c.close() })
}
