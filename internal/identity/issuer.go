package identity

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"go.yaml.in/yaml/v3"
)

// issuer is an OpenID Connect issuer whose signed tokens (JWT) are accepted.
type issuer struct {
	url, keysURL          string
	audience, algorithms  []string
	skew                  time.Duration
	nameClaim, rolesClaim string
	authorities           *x509.CertPool     // of the issuer's certificate; nil for the system's
	roles                 []*role            // of every valid token
	mapped                map[string][]*role // by a value of rolesClaim

	verifier *oidc.IDTokenVerifier
	keys     *keys
	now      func() time.Time

	mu       sync.Mutex
	verified map[[sha256.Size]byte]verifiedToken // guarded by mu
}

// verifiedToken is a token that was verified, so that the next request with it need not be.
type verifiedToken struct {
	who         *Identity
	from, until time.Time // from is when it was verified: before, the clock was set back, and it is verified again
}

// valid reports whether the token need not be verified.
func (v verifiedToken) valid(now time.Time) bool { return !now.Before(v.from) && now.Before(v.until) }

const (
	maxVerified    = 4096             // tokens are remembered
	verifiedTime   = time.Minute      // at most, so that a key that the issuer removed ends its tokens soon
	defaultSkew    = time.Minute      // that the issuer's clock may be behind
	maxSkew        = 5 * time.Minute  // as OpenID Connect providers have it
	maxRoleClaims  = 256              // values of a claim with roles
	defaultClaim   = "sub"            // with the name
	verifyWaitTime = 10 * time.Second // that a request waits for keys
)

// signatures are the algorithms that a file may allow. Those with a shared secret, and none, are not among them.
var signatures = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA}

// issuer reads an entry of the issuers.
func (r *reader) issuer(n *yaml.Node, p *policy) error {
	i := &issuer{skew: defaultSkew, nameClaim: defaultClaim, mapped: map[string][]*role{}}
	err := r.fields(n, "an issuer", map[string]func(*yaml.Node) error{
		"issuer":      r.address(&i.url),
		"jwks":        r.address(&i.keysURL),
		"audience":    r.texts(&i.audience),
		"algorithms":  func(n *yaml.Node) error { return r.algorithms(n, i) },
		"clock-skew":  func(n *yaml.Node) error { return r.skew(n, i) },
		"name-claim":  r.text(&i.nameClaim),
		"roles-claim": r.text(&i.rolesClaim),
		"ca":          func(n *yaml.Node) error { return r.authority(n, i) },
		"roles":       func(n *yaml.Node) (err error) { i.roles, err = r.rolesOf(n, p); return err },
		"map":         func(n *yaml.Node) error { return r.mapping(n, i, p) },
	})
	switch {
	case err != nil:
		return err
	case i.url == "":
		return r.errorf(n, "an issuer has no URL, expected the key issuer")
	case len(i.audience) == 0:
		return r.errorf(n, "issuer '%s' has no audience: tokens for other programs would open this server; expected the name by which the issuer knows it", i.url)
	case len(i.roles)+len(i.mapped) == 0:
		return r.errorf(n, "issuer '%s' gives no role, expected roles, or roles-claim with map", i.url)
	case (i.rolesClaim == "") != (len(i.mapped) == 0):
		return r.errorf(n, "issuer '%s': roles-claim and map go together, found only one of them", i.url)
	case p.issuers[i.url] != nil:
		return r.errorf(n, "issuer '%s' is there twice", i.url)
	}
	if len(i.algorithms) == 0 {
		i.algorithms = []string{oidc.RS256, oidc.ES256}
	}
	p.issuers[i.url] = i
	return nil
}

// address returns a function that reads a URL.
func (r *reader) address(to *string) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if err := r.text(to)(n); err != nil {
			return err
		}
		u, err := url.Parse(*to)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
			return r.errorf(n, "'%s' is no URL of an issuer, expected https://HOST/PATH", *to)
		}
		if u.Scheme == "http" && !isLoopback(u.Hostname()) {
			return r.errorf(n, "'%s' is not encrypted: whoever is on the way could sign tokens; expected https", *to)
		}
		return nil
	}
}

func (r *reader) algorithms(n *yaml.Node, i *issuer) error {
	return r.list(n, func(n *yaml.Node) error {
		if !slices.Contains(signatures, n.Value) {
			return r.errorf(n, "the algorithm '%s' is not accepted, expected some of %s", n.Value, strings.Join(signatures, ", "))
		}
		i.algorithms = append(i.algorithms, n.Value)
		return nil
	})
}

func (r *reader) skew(n *yaml.Node, i *issuer) error {
	seconds, err := strconv.Atoi(n.Value)
	if i.skew = time.Duration(seconds) * time.Second; err != nil || i.skew < 0 || i.skew > maxSkew {
		return r.errorf(n, "clock-skew is '%s', expected seconds from 0 to %d", n.Value, int(maxSkew/time.Second))
	}
	return nil
}

func (r *reader) authority(n *yaml.Node, i *issuer) error {
	pem, err := r.readSecret(r.beside(n.Value))
	if err != nil {
		return r.errorf(n, "ca: %w", err)
	}
	if i.authorities = x509.NewCertPool(); !i.authorities.AppendCertsFromPEM(pem) {
		return r.errorf(n, "ca: '%s' has no certificate in PEM form", n.Value)
	}
	return nil
}

// mapping reads the roles of the values of a claim.
func (r *reader) mapping(n *yaml.Node, i *issuer, p *policy) error {
	if n.Kind != yaml.MappingNode {
		return r.errorf(n, "map: expected a mapping of values of the claim to roles")
	}
	for k := 0; k+1 < len(n.Content); k += 2 {
		list, err := r.rolesOf(n.Content[k+1], p)
		if err != nil {
			return err
		}
		i.mapped[n.Content[k].Value] = list
	}
	return nil
}

// start makes the issuer ready. It takes over the keys of the one before, if there is one with the same addresses.
func (i *issuer) start(g *Guard, before *issuer) {
	i.now, i.verified = g.set.Now, map[[sha256.Size]byte]verifiedToken{}
	if before != nil && before.keysURL == i.keysURL && (before.authorities == nil) == (i.authorities == nil) &&
		(i.authorities == nil || i.authorities.Equal(before.authorities)) {
		i.keys = before.keys.with(i.algorithms)
	} else {
		i.keys = newKeys(g.ctx, i, g.set.Log)
		i.keys.fetch()
	}
	i.verifier = oidc.NewVerifier(i.url, i.keys, &oidc.Config{
		SkipClientIDCheck: true, SupportedSigningAlgs: i.algorithms, // the audience is checked below: a file may have several
		Now: func() time.Time { return i.now().Add(-i.skew) },
	})
}

// byIssuer returns the identity of a signed token.
func (p *policy) byIssuer(ctx context.Context, g *Guard, token string, sum [sha256.Size]byte, noWait bool) (*Identity, error) {
	i := p.issuers[issuerOf(token)]
	if i == nil {
		return nil, unknown("the token is not of an issuer that this server knows")
	}
	now := g.set.Now()
	if who := i.recall(sum, now); who != nil {
		return who, nil
	}
	ctx, cancel := context.WithTimeout(ctx, verifyWaitTime)
	defer cancel()
	a := &attempt{noWait: noWait}
	t, err := i.verifier.Verify(context.WithValue(ctx, attemptKey{}, a), token)
	switch {
	case errors.Is(a.err, ErrPending):
		return nil, ErrPending
	case a.err != nil:
		return nil, &RefusedError{Reason: Undecided, Text: "the keys of the issuer '" + i.url + "' cannot be had: " + a.err.Error() + "; send the request again"}
	case err != nil:
		return nil, unknown("the token is not accepted: " + cut(strings.TrimPrefix(err.Error(), "oidc: ")))
	case !slices.ContainsFunc(t.Audience, func(s string) bool { return slices.Contains(i.audience, s) }):
		return nil, unknown("the token is for another audience, expected " + strings.Join(i.audience, " or "))
	}
	who, err := i.identity(t)
	if err != nil {
		return nil, err
	}
	i.remember(sum, verifiedToken{who, now, earlier(now.Add(verifiedTime), t.Expiry.Add(i.skew))}, now)
	return who, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// issuerOf returns the issuer that a token, which is not verified yet, claims.
func issuerOf(token string) string {
	part := strings.Split(token, ".")[1]
	b, err := base64.RawURLEncoding.DecodeString(part)
	var claims struct {
		Issuer string `json:"iss"`
	}
	if err != nil || json.Unmarshal(b, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

// identity returns who a verified token is for.
func (i *issuer) identity(t *oidc.IDToken) (*Identity, error) {
	var claims map[string]any
	if err := t.Claims(&claims); err != nil {
		return nil, unknown("the claims of the token are not understood")
	}
	name, ok := claims[i.nameClaim].(string)
	if !ok || name == "" {
		return nil, unknown("the token has no claim '" + i.nameClaim + "' with a name")
	}
	who := &Identity{Name: cut(name), By: byIssuer, roles: slices.Clone(i.roles)}
	for _, value := range claimTexts(claims, i.rolesClaim) {
		for _, r := range i.mapped[value] {
			if !slices.Contains(who.roles, r) {
				who.roles = append(who.roles, r)
			}
		}
	}
	return who, nil
}

// claimTexts returns the texts of a claim: a text with words (as scope), or a list. Dots in its name lead into objects, for example
// realm_access.roles.
func claimTexts(claims map[string]any, name string) (list []string) {
	if name == "" {
		return nil
	}
	value, ok := claims[name]
	for rest := name; !ok; {
		var first string
		var more bool
		if first, rest, more = strings.Cut(rest, "."); !more {
			value = claims[first]
			break
		}
		if claims, more = claims[first].(map[string]any); !more {
			return nil
		}
	}
	switch v := value.(type) {
	case string:
		list = strings.Fields(v)
	case []any:
		for _, x := range v {
			if s, ok := x.(string); ok {
				list = append(list, s)
			}
		}
	}
	return list[:min(len(list), maxRoleClaims)]
}

func (i *issuer) recall(sum [sha256.Size]byte, now time.Time) *Identity {
	i.mu.Lock()
	defer i.mu.Unlock()
	if v, ok := i.verified[sum]; ok && v.valid(now) {
		return v.who
	}
	return nil
}

func (i *issuer) remember(sum [sha256.Size]byte, v verifiedToken, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.verified) >= maxVerified {
		for k, old := range i.verified {
			if !old.valid(now) || len(i.verified) >= maxVerified {
				delete(i.verified, k)
			}
		}
	}
	i.verified[sum] = v
}
