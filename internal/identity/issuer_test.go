package identity_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"github.com/tutti-server/tutti/internal/identity"
)

// provider is an OpenID Connect issuer.
type provider struct {
	*httptest.Server

	fetches atomic.Int64
	away    atomic.Bool
	mu      sync.Mutex
	set     jose.JSONWebKeySet // guarded by mu
}

func newProvider(t *testing.T, keys ...jose.JSONWebKey) *provider {
	t.Helper()
	p := &provider{set: jose.JSONWebKeySet{Keys: keys}}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		if p.away.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q,"authorization_endpoint":"x","token_endpoint":"x","id_token_signing_alg_values_supported":["RS256"]}`, p.URL, p.URL+"/keys")
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		p.fetches.Add(1)
		p.mu.Lock()
		defer p.mu.Unlock()
		_ = json.NewEncoder(w).Encode(p.set)
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(p.Close)
	return p
}

func (p *provider) rotate(keys ...jose.JSONWebKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set.Keys = keys
}

var rsaKeys = sync.OnceValue(func() [2]*rsa.PrivateKey {
	a, _ := rsa.GenerateKey(rand.Reader, 2048)
	b, _ := rsa.GenerateKey(rand.Reader, 2048)
	return [2]*rsa.PrivateKey{a, b}
})

func public(id string, key any) jose.JSONWebKey {
	return jose.JSONWebKey{KeyID: id, Key: key, Use: "sig"}
}

type claims map[string]any

// sign returns a token with claims over the usual ones.
func (p *provider) sign(t *testing.T, alg jose.SignatureAlgorithm, key any, id string, over claims) string {
	t.Helper()
	all := claims{"iss": p.URL, "aud": "tutti", "sub": "ada", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix()}
	for k, v := range over {
		if all[k] = v; v == nil {
			delete(all, k)
		}
	}
	o := (&jose.SignerOptions{}).WithType("JWT")
	if id != "" {
		o = o.WithHeader("kid", id)
	}
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, o)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(all)
	signed, err := s.Sign(b)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (p *provider) file(more string) string {
	return roles + "issuers:\n- issuer: " + p.URL + "\n  audience: [tutti, second]\n  roles: use\n" + more
}

// raw returns a token with a header and an empty or given signature.
func raw(header string, over claims, signature string) string {
	e := base64.RawURLEncoding.EncodeToString
	b, _ := json.Marshal(over)
	return e([]byte(header)) + "." + e(b) + "." + signature
}

// TestSignedTokens sends good tokens, and attacks.
func TestSignedTokens(t *testing.T) {
	t.Parallel()
	key, other := rsaKeys()[0], rsaKeys()[1]
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := newProvider(t, public("a", key.Public()), public("e", curve.Public()))
	g := open(t, p.file("  roles-claim: realm.groups\n  map: {ops: run}\n"))
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	publicPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	now := time.Now()
	body := claims{"iss": p.URL, "aud": "tutti", "sub": "eve", "exp": now.Add(time.Hour).Unix()}
	good := p.sign(t, jose.RS256, key, "a", nil)
	parts := strings.Split(good, ".")
	forged := parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"`+p.URL+`","aud":"tutti","sub":"root","exp":9999999999}`)) + "." + parts[2]
	for _, tt := range []struct{ name, token, want string }{
		{"RS256", good, "ada"},
		{"ES256", p.sign(t, jose.ES256, curve, "e", nil), "ada"},
		{"no key id", p.sign(t, jose.RS256, key, "", nil), "ada"},
		{"second audience", p.sign(t, jose.RS256, key, "a", claims{"aud": []string{"x", "second"}}), "ada"},
		{"expired within the skew", p.sign(t, jose.RS256, key, "a", claims{"exp": now.Add(-30 * time.Second).Unix()}), "ada"},
		{"expired", p.sign(t, jose.RS256, key, "a", claims{"exp": now.Add(-2 * time.Minute).Unix()}), ""},
		{"never expires", p.sign(t, jose.RS256, key, "a", claims{"exp": nil}), ""},
		{"not yet valid", p.sign(t, jose.RS256, key, "a", claims{"nbf": now.Add(time.Hour).Unix()}), ""},
		{"other audience", p.sign(t, jose.RS256, key, "a", claims{"aud": "other"}), ""},
		{"no audience", p.sign(t, jose.RS256, key, "a", claims{"aud": nil}), ""},
		{"other issuer", p.sign(t, jose.RS256, key, "a", claims{"iss": "https://evil.example"}), ""},
		{"issuer with a slash", p.sign(t, jose.RS256, key, "a", claims{"iss": p.URL + "/"}), ""},
		{"no subject", p.sign(t, jose.RS256, key, "a", claims{"sub": nil}), ""},
		{"other key", p.sign(t, jose.RS256, other, "a", nil), ""},
		{"unknown key", p.sign(t, jose.RS256, other, "x", nil), ""},
		{"algorithm that is not allowed", p.sign(t, jose.RS512, key, "a", nil), ""},
		{"key of another kind", p.sign(t, jose.ES256, curve, "a", nil), ""},
		{"HS256 with the public key", p.sign(t, jose.HS256, publicPEM, "a", nil), ""},
		{"HS256 with its DER", p.sign(t, jose.HS256, der, "a", nil), ""},
		{"none", raw(`{"alg":"none"}`, body, ""), ""},
		{"none, with a key id", raw(`{"alg":"none","kid":"a"}`, body, ""), ""},
		{"NONE", raw(`{"alg":"NoNe"}`, body, ""), ""},
		{"no algorithm", raw(`{}`, body, "AA"), ""},
		{"other claims, same signature", forged, ""},
		{"no signature", parts[0] + "." + parts[1] + ".", ""},
		{"no JSON", raw(`x`, body, "AA"), ""},
		{"key in the header", raw(`{"alg":"RS256","jwk":{"kty":"oct","k":"AA"}}`, body, "AA"), ""},
		{"key by URL", raw(`{"alg":"RS256","jku":"`+p.URL+`/keys","kid":"z"}`, body, "AA"), ""},
		{"critical header", raw(`{"alg":"RS256","kid":"a","crit":["x"],"x":1}`, body, parts[2]), ""},
	} {
		who, err := g.Authenticate(t.Context(), bearer(tt.token))
		switch {
		case tt.want == "" && reason(t, err) != int(identity.Unauthenticated):
			t.Errorf("%s: %v, %v", tt.name, who, err)
		case tt.want != "" && (err != nil || who.Name != tt.want || who.MayAll(identity.GroupMetrics) == nil):
			t.Errorf("%s: %v, %v", tt.name, who, err)
		}
	}
	ops := p.sign(t, jose.RS256, key, "a", claims{"realm": claims{"groups": []any{"ops", 7}}})
	if who, err := g.Authenticate(t.Context(), bearer(ops)); err != nil || who.MayAll(identity.GroupMetrics) != nil {
		t.Errorf("role of a claim: %v, %v", who, err)
	}
}

// TestKeyFlood sends tokens with ever new key ids: they cause no further fetches. A rotated key is found once some time has passed.
func TestKeyFlood(t *testing.T) {
	t.Parallel()
	c := newClock()
	key, next := rsaKeys()[0], rsaKeys()[1]
	p := newProvider(t, public("a", key.Public()))
	g := open(t, p.file(""), func(s *identity.Settings) { s.Now = c.now })
	if _, err := g.Authenticate(t.Context(), bearer(p.sign(t, jose.RS256, key, "a", nil))); err != nil {
		t.Fatal(err)
	}
	before := p.fetches.Load()
	for i := range 300 {
		if _, err := g.Authenticate(t.Context(), bearer(p.sign(t, jose.ES256, mustCurve(t), fmt.Sprint("k", i), nil))); reason(t, err) != int(identity.Unauthenticated) {
			t.Fatal(err)
		}
	}
	if n := p.fetches.Load() - before; n != 0 {
		t.Errorf("%d fetches for 300 tokens", n)
	}
	p.rotate(public("b", next.Public()))
	token := p.sign(t, jose.RS256, next, "b", nil)
	if _, err := g.Authenticate(t.Context(), bearer(token)); reason(t, err) != int(identity.Unauthenticated) {
		t.Error(err)
	}
	c.move(11 * time.Second)
	if _, err := g.Authenticate(t.Context(), bearer(token)); err != nil {
		t.Error(err)
	}
	if n := p.fetches.Load() - before; n != 1 {
		t.Errorf("%d fetches, want 1", n)
	}
	c.move(2 * time.Minute) // the old key is gone, and what was verified with it is forgotten
	if _, err := g.Authenticate(t.Context(), bearer(p.sign(t, jose.RS256, key, "a", nil))); reason(t, err) != int(identity.Unauthenticated) {
		t.Error(err)
	}
}

var mustCurve = func() func(t *testing.T) *ecdsa.PrivateKey {
	key := sync.OnceValues(func() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) })
	return func(t *testing.T) *ecdsa.PrivateKey {
		t.Helper()
		k, err := key()
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
}()

// TestIssuerAway starts with an issuer that is away, which comes, and goes again.
func TestIssuerAway(t *testing.T) {
	t.Parallel()
	c := newClock()
	key := rsaKeys()[0]
	p := newProvider(t, public("a", key.Public()))
	p.away.Store(true)
	g := open(t, p.file(""), func(s *identity.Settings) { s.Now = c.now })
	token := p.sign(t, jose.RS256, key, "a", claims{"exp": time.Now().Add(24 * time.Hour).Unix()})
	_, err := g.Authenticate(t.Context(), bearer(token))
	if reason(t, err) != int(identity.Undecided) || !strings.Contains(err.Error(), "502") || !strings.Contains(err.Error(), p.URL) {
		t.Errorf("away: %v", err)
	}
	pending := bearer(token)
	pending.NoWait = true
	c.move(11 * time.Second)
	if _, err := g.Authenticate(t.Context(), pending); err != identity.ErrPending { //nolint:errorlint // returned as it is
		t.Errorf("without waiting: %v", err)
	}
	if _, err := g.Authenticate(t.Context(), bearer(token)); reason(t, err) != int(identity.Undecided) {
		t.Errorf("still away: %v", err)
	}
	p.away.Store(false)
	c.move(11 * time.Second)
	if _, err := g.Authenticate(t.Context(), bearer(token)); err != nil {
		t.Errorf("back: %v", err)
	}
	p.away.Store(true)
	c.move(2 * time.Hour) // the keys are old: they are fetched in the background, and stay in use
	if _, err := g.Authenticate(t.Context(), bearer(token)); err != nil {
		t.Errorf("away again: %v", err)
	}
}

// TestTokenClock moves the clock under a signed token: it is valid from its beginning to its end by the clock of the server, also after the server has
// verified it, and keys are fetched again after the clock was set back.
func TestTokenClock(t *testing.T) {
	t.Parallel()
	c := newClock()
	c.at = c.at.Round(0) // as of a clock that may be set
	start, key, next := c.at, rsaKeys()[0], rsaKeys()[1]
	p := newProvider(t, public("a", key.Public()))
	g := open(t, p.file(""), func(s *identity.Settings) { s.Now = c.now })
	token := p.sign(t, jose.RS256, key, "a", claims{"nbf": start.Unix(), "exp": start.Add(time.Hour).Unix()})
	for _, tt := range []struct {
		at    time.Duration
		valid bool
	}{
		{0, true},
		{2 * time.Hour, false}, // forward, beyond the end
		{30 * time.Minute, true},
		{time.Hour + 59*time.Second, true}, // within the skew
		{time.Hour + 61*time.Second, false},
		{10 * time.Minute, true},
		{-24 * time.Hour, false}, // before the beginning
		{20 * time.Minute, true},
	} {
		c.move(start.Add(tt.at).Sub(c.now()))
		_, err := g.Authenticate(t.Context(), bearer(token))
		if got := reason(t, err) == -1; got != tt.valid {
			t.Errorf("at %v: %v, want %v", tt.at, err, tt.valid)
		}
	}
	p.rotate(public("b", next.Public()))
	c.move(-48 * time.Hour)
	now := c.now()
	if _, err := g.Authenticate(t.Context(), bearer(p.sign(t, jose.RS256, next, "b", claims{"nbf": now.Unix(), "exp": now.Add(time.Hour).Unix()}))); err != nil {
		t.Errorf("a key that was rotated while the clock was set back: %v", err)
	}
}

// TestRotationUnderLoad rotates the issuer's keys while requests run: tokens of a key that is there are never refused.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	c := newClock()
	key, next := rsaKeys()[0], rsaKeys()[1]
	p := newProvider(t, public("a", key.Public()))
	g := open(t, p.file(""), func(s *identity.Settings) { s.Now = c.now })
	stop, failed := make(chan struct{}), make(chan error, 8)
	for range cap(failed) {
		go func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					failed <- nil
					return
				default:
				}
				token := p.sign(t, jose.RS256, key, "a", claims{"jti": i}) // never one that is remembered
				if _, err := g.Authenticate(t.Context(), bearer(token)); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	for i := range 10 {
		p.rotate(public("a", key.Public()), public(fmt.Sprint("b", i), next.Public()))
		c.move(11 * time.Second)
		if _, err := g.Authenticate(t.Context(), bearer(p.sign(t, jose.RS256, next, fmt.Sprint("b", i), nil))); err != nil {
			t.Errorf("rotation %d: %v", i, err)
		}
	}
	close(stop)
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}
