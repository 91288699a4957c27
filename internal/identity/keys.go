package identity

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	jose "github.com/go-jose/go-jose/v4"
)

const (
	// keysEvery is how often the keys of an issuer are fetched again; keysWait is the least time between two fetches, whatever tokens come.
	keysEvery = time.Hour
	keysWait  = 10 * time.Second
	// fetchTime bounds a fetch, maxKeysBody its response, maxKeys how many keys of it count.
	fetchTime   = 5 * time.Second
	maxKeysBody = 1 << 20
	maxKeys     = 64
)

// attempt is the state of one verification.
type attempt struct {
	noWait bool
	err    error // why the keys could not be had
}

type attemptKey struct{}

// keys verifies signatures with the keys of an issuer. It implements oidc.KeySet.
//
// Keys are fetched at the start, every hour, and for a token with an unknown key, but at most once in keysWait. Concurrent requests
// share one fetch. While the issuer is away the keys of the last fetch stay in use.
type keys struct {
	algorithms []jose.SignatureAlgorithm
	*keyStore
}

// keyStore has the keys of an issuer.
type keyStore struct {
	ctx             context.Context //nolint:containedctx // of the fetches, which outlast requests
	issuer, address string
	client          *http.Client
	log             *slog.Logger
	now             func() time.Time

	mu      sync.Mutex
	list    []jose.JSONWebKey // nil before the first fetch; guarded by mu
	fetched time.Time         // when they came; guarded by mu
	tried   time.Time         // when the last fetch began; guarded by mu
	failed  error             // of the last fetch; guarded by mu
	busy    chan struct{}     // closed at the end of the fetch under way, nil if there is none; guarded by mu
}

func newKeys(ctx context.Context, i *issuer, log *slog.Logger) *keys {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck,forcetypeassert // of net/http
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: i.authorities}
	transport.MaxResponseHeaderBytes = 64 << 10
	client := &http.Client{
		Transport: boundedBodies{transport}, Timeout: fetchTime,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the issuer redirects, expected its keys")
		},
	}
	s := &keyStore{ctx: oidc.ClientContext(ctx, client), issuer: i.url, address: i.keysURL, client: client, log: log, now: i.now}
	return (&keys{keyStore: s}).with(i.algorithms)
}

// with returns the keys for other algorithms.
func (k *keys) with(algorithms []string) *keys {
	c := &keys{keyStore: k.keyStore}
	for _, a := range algorithms {
		c.algorithms = append(c.algorithms, jose.SignatureAlgorithm(a))
	}
	return c
}

// boundedBodies bounds the bodies of responses.
type boundedBodies struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxKeysBody)
	}
	return resp, err
}

var errSignature = errors.New("its signature is wrong, or the issuer has no such key")

// VerifySignature returns the payload of a token whose signature is right.
func (k *keys) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	if a == nil {
		a = &attempt{}
	}
	signed, err := jose.ParseSignedCompact(token, k.algorithms)
	if err != nil || len(signed.Signatures) != 1 {
		return nil, errSignature
	}
	id := signed.Signatures[0].Header.KeyID
	k.refresh()
	payload, known := verify(signed, k.snapshot(), id)
	if payload != nil {
		return payload, nil
	}
	if known {
		return nil, errSignature
	}
	if err := k.await(ctx, a.noWait); err != nil {
		a.err = err
		return nil, err
	}
	if payload, _ = verify(signed, k.snapshot(), id); payload == nil {
		return nil, errSignature
	}
	return payload, nil
}

// verify tries the keys with an id, or all if the token names none. known reports whether there were any.
func verify(signed *jose.JSONWebSignature, list []jose.JSONWebKey, id string) (payload []byte, known bool) {
	for i := range list {
		if id != "" && list[i].KeyID != id {
			continue
		}
		known = id != "" // a token without an id may be of a key that is new
		if b, err := signed.Verify(&list[i]); err == nil {
			return b, true
		}
	}
	return nil, known
}

func (s *keyStore) snapshot() []jose.JSONWebKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list
}

// refresh starts a fetch if the keys are old.
func (s *keyStore) refresh() {
	s.mu.Lock()
	old := s.list != nil && s.now().Sub(s.fetched) >= keysEvery
	s.mu.Unlock()
	if old {
		s.fetch()
	}
}

// fetch starts a fetch unless one is under way or the last one began within keysWait. It returns a channel that is closed at its end, nil
// if there is none.
func (s *keyStore) fetch() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch now := s.now(); {
	case s.busy != nil:
		return s.busy
	case !s.tried.IsZero() && now.Sub(s.tried) < keysWait && now.Sub(s.tried) >= 0:
		return nil
	default:
		s.tried = now
	}
	done := make(chan struct{})
	s.busy = done
	go func() {
		list, err := s.load()
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.failed, s.busy = err, nil; err == nil {
			s.list, s.fetched = list, s.now()
		} else if s.ctx.Err() == nil {
			s.log.Warn("the keys of an issuer of tokens cannot be fetched", slog.String("issuer", s.issuer), slog.String("error", cut(err.Error())))
		}
		close(done)
	}()
	return done
}

// await waits for a fetch, and returns why there are no keys, nil if there are some or the bound on fetches forbids one.
func (s *keyStore) await(ctx context.Context, noWait bool) error {
	done := s.fetch()
	if done != nil {
		if noWait {
			return ErrPending
		}
		select {
		case <-done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		return s.failed
	}
	return nil
}

// load fetches the keys.
func (s *keyStore) load() ([]jose.JSONWebKey, error) {
	address := s.address
	if address == "" {
		p, err := oidc.NewProvider(s.ctx, s.issuer)
		if err != nil {
			return nil, err
		}
		var found struct {
			Keys string `json:"jwks_uri"`
		}
		if err := p.Claims(&found); err != nil || found.Keys == "" {
			return nil, errors.New("its discovery document has no jwks_uri")
		}
		if strings.HasPrefix(s.issuer, "https:") && !strings.HasPrefix(found.Keys, "https:") {
			return nil, fmt.Errorf("its jwks_uri '%.100s' is not encrypted, expected https", found.Keys)
		}
		address = found.Keys
	}
	return s.get(address)
}

// get fetches a JWK set. Keys that are not for signatures, or not public, are left out.
func (s *keyStore) get(address string) ([]jose.JSONWebKey, error) {
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%.100s responds %s", address, resp.Status)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, fmt.Errorf("%.100s has no JWK set: %w", address, err)
	}
	list := make([]jose.JSONWebKey, 0, min(len(set.Keys), maxKeys))
	for _, raw := range set.Keys[:min(len(set.Keys), maxKeys)] {
		var key jose.JSONWebKey // of a kind that is not known, an error: other keys count
		if json.Unmarshal(raw, &key) == nil && key.IsPublic() && key.Valid() && slices.Contains([]string{"", "sig"}, key.Use) {
			list = append(list, key)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%.100s has no public key for signatures", address)
	}
	return list, nil
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && ip.IsLoopback()
}
