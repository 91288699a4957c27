package identity

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/infer"
)

// Settings configures a Guard. The zero value has no auth file.
type Settings struct {
	File          string // File is the auth file; empty for none
	RemoteControl bool   // RemoteControl lets clients of other machines change the server when there is no file
	// DashboardToken is the token of --dashboard-token, which stays valid for the dashboard beside a file; empty for none.
	DashboardToken string
	Audit          string    // Audit is the file of the audit log, or StandardError; empty for none
	Stderr         io.Writer // where StandardError goes; nil for os.Stderr
	Log            *slog.Logger
	// Namespaces returns the namespaces that have a model of a name: those of models that the server knows, and for control also those
	// from which a request would load it. It must not change the list that it returns. Nil: models have no namespaces.
	Namespaces func(model string, control bool) []string
	// Getenv and Now are os.Getenv and time.Now if nil.
	Getenv func(string) string
	Now    func() time.Time
}

// Guard decides who may use what. The nil Guard allows everything. It is safe for concurrent use, and closed once.
type Guard struct {
	set       Settings
	ctx       context.Context //nolint:containedctx // of the fetches of keys, which outlast requests
	stop      context.CancelFunc
	policy    atomic.Pointer[policy] // nil without a file
	dashboard *[sha256.Size]byte
	looked    atomic.Int64 // when the file was looked at, in nanoseconds since 1970
	reloads   sync.Mutex
	closing   sync.Once
	audit     *auditLog
	notices   budget
	broken    budget
	counts    [Undecided + 1]atomic.Uint64
}

// lookEvery is how often the auth file is looked at, when requests come.
const lookEvery = time.Second

// Open reads the auth file and opens the audit log. Keys of issuers are fetched in the background: an issuer that is away does not keep
// the server from starting.
func Open(ctx context.Context, set Settings) (*Guard, error) {
	if set.Log == nil {
		set.Log = slog.New(slog.DiscardHandler)
	}
	if set.Getenv == nil {
		set.Getenv = os.Getenv
	}
	if set.Now == nil {
		set.Now = time.Now
	}
	if set.Stderr == nil {
		set.Stderr = os.Stderr
	}
	g := &Guard{set: set, notices: budget{burst: noticeBurst, interval: noticeEvery}, broken: budget{burst: 1, interval: time.Minute}}
	if set.DashboardToken != "" {
		sum := sha256.Sum256([]byte(set.DashboardToken))
		g.dashboard = &sum
	}
	g.ctx, g.stop = context.WithCancel(context.WithoutCancel(ctx))
	if set.File != "" {
		p, err := readPolicy(&set)
		if err != nil {
			g.stop()
			return nil, err
		}
		p.start(g, nil)
		g.policy.Store(p)
		g.looked.Store(set.Now().UnixNano())
	}
	var err error
	if g.audit, err = openAudit(set.Audit, set.Stderr); err != nil {
		g.stop()
		return nil, err
	}
	return g, nil
}

// Close ends fetches and closes the audit log. Further calls do nothing.
func (g *Guard) Close() (err error) {
	if g == nil {
		return nil
	}
	g.closing.Do(func() {
		g.stop()
		if g.audit != nil {
			err = g.audit.close()
		}
	})
	return err
}

// Required reports whether requests need an identity: there is an auth file.
//
// hot: no allocation.
func (g *Guard) Required() bool { return g != nil && g.policy.Load() != nil }

// Refusals returns how many requests were refused because nobody was known, because a role lacked the right, and because an issuer's keys
// could not be had.
func (g *Guard) Refusals() (unauthenticated, forbidden, undecided uint64) {
	return g.counts[Unauthenticated].Load(), g.counts[Forbidden].Load(), g.counts[Undecided].Load()
}

// Credentials are what a request has to identify itself.
type Credentials struct {
	Authorization []string              // the values of the header, or of the metadata, of this name
	Chains        [][]*x509.Certificate // the verified chains of the client certificate
	// NoWait makes Authenticate return ErrPending instead of waiting for an issuer.
	NoWait bool
}

// ErrPending is the error of a token whose issuer's keys are being fetched.
var ErrPending = errors.New("the keys of the token's issuer are being fetched")

// Authenticate returns the identity of a request. Errors are ErrPending or a *RefusedError. It must be called only if Required. A request with
// wrong credentials is refused, also where one without is not.
func (g *Guard) Authenticate(ctx context.Context, c Credentials) (*Identity, error) {
	p := g.current()
	switch len(c.Authorization) {
	case 0:
	case 1:
		return p.byToken(ctx, g, c.Authorization[0], c.NoWait)
	default:
		return nil, unknown("the header Authorization is there more than once, expected it once")
	}
	if len(c.Chains) > 0 && len(c.Chains[0]) > 0 {
		if who := p.byCertificate(c.Chains[0][0]); who != nil {
			return who, nil
		}
	}
	if p.anonymous != nil {
		return p.anonymous, nil
	}
	return nil, unknown("this server needs a token: expected the header 'Authorization: Bearer TOKEN'")
}

func unknown(text string) error { return &RefusedError{Reason: Unauthenticated, Text: text} }

// maxToken bounds a token in bytes.
const maxToken = 16 << 10

// byToken returns the identity of the value of the header.
func (p *policy) byToken(ctx context.Context, g *Guard, value string, noWait bool) (*Identity, error) {
	scheme, token, ok := strings.Cut(value, " ")
	token = strings.TrimSpace(token)
	switch {
	case !ok || !strings.EqualFold(scheme, "Bearer") || token == "":
		return nil, unknown("the header Authorization is not understood, expected 'Authorization: Bearer TOKEN'")
	case len(token) > maxToken:
		return nil, unknown("the token is longer than 16 KiB")
	}
	sum := sha256.Sum256([]byte(token))
	var who *Identity
	for i := range p.tokens { // all of them, so that the time says nothing
		if t := &p.tokens[i]; subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1 {
			who = t.who
		}
	}
	switch {
	case who != nil:
		return who, nil
	case g.dashboard != nil && subtle.ConstantTimeCompare(sum[:], g.dashboard[:]) == 1:
		return dashboardUser, nil
	case len(p.issuers) > 0 && strings.Count(token, ".") == 2:
		return p.byIssuer(ctx, g, token, sum, noWait)
	}
	return nil, unknown("the token is not known to this server")
}

// dashboardUser is who has the token of --dashboard-token. It may use the dashboard, and load and unload models there.
var dashboardUser = &Identity{Name: byDashboard, By: byDashboard, roles: []*role{{name: byDashboard, groups: setOf(
	GroupDashboard, GroupCapture, GroupOf(infer.APIHealth), GroupOf(infer.APIMetadata), GroupOf(infer.APIModelConfig), GroupOf(infer.APIModelRepository),
	GroupOf(infer.APIStatistics), GroupOf(infer.APITrace))}}}

// byCertificate returns the identity of a verified client certificate, nil if no entry of the file matches it.
func (p *policy) byCertificate(c *x509.Certificate) *Identity {
	for i := range p.certificates {
		if e := &p.certificates[i]; e.matches(c) {
			return e.who
		}
	}
	return nil
}

// current returns the policy of the file, after a look whether the file has changed.
func (g *Guard) current() *policy {
	now := g.set.Now().UnixNano()
	// A clock that was set back counts as time that has passed: a token that was removed must not stay valid until the clock is there again.
	if last := g.looked.Load(); (now-last >= int64(lookEvery) || now < last) && g.looked.CompareAndSwap(last, now) {
		g.reload()
	}
	return g.policy.Load()
}

// reload reads the files again if they have changed. A file that cannot be used is logged, and the policy before stays in force.
func (g *Guard) reload() {
	g.reloads.Lock()
	defer g.reloads.Unlock()
	old := g.policy.Load()
	if stampsOf(old.files).equal(old.stamps) {
		return
	}
	p, err := readPolicy(&g.set)
	if err != nil {
		old = old.with(stampsOf(old.files))
		g.policy.Store(old)
		g.set.Log.Error("the changed auth file cannot be used, the one before stays in force", slog.String("error", err.Error()))
		return
	}
	p.start(g, old)
	g.policy.Store(p)
	g.set.Log.Info("reloaded the auth file", slog.String("file", g.set.File))
}

// Refuse counts, logs and records a refused request, and returns the refusal. err must be a *RefusedError.
func (g *Guard) Refuse(who *Identity, e Event, err error) *RefusedError {
	var r *RefusedError
	if !errors.As(err, &r) {
		r = &RefusedError{Reason: Unauthenticated, Text: err.Error()}
	}
	if g != nil {
		g.refused(who, e, r)
	}
	return r
}

// Control returns why a client may not change the server: there is no auth file, and it is not of this machine. restricted says that the
// change needs the key of a restricted API, which the request had.
func (g *Guard) Control(action string, local, restricted bool) error {
	if g == nil || g.set.RemoteControl || local || restricted || g.Required() {
		return nil
	}
	return remoteError(action)
}
