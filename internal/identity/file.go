package identity

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// policy is the content of an auth file. It does not change after start.
type policy struct {
	roles        map[string]*role
	tokens       []token
	issuers      map[string]*issuer // by the URL
	certificates []certificate
	anonymous    *Identity // nil if requests without credentials are refused
	files        []string
	stamps       stamps
}

// token is a static token, of which only the SHA-256 is kept.
type token struct {
	sum [sha256.Size]byte
	who *Identity
}

// certificate selects client certificates. Empty texts match all.
type certificate struct {
	subject, commonName, san string
	who                      *Identity
}

// matches reports whether all texts are those of a certificate.
func (e *certificate) matches(c *x509.Certificate) bool {
	return (e.subject == "" || c.Subject.String() == e.subject) && (e.commonName == "" || c.Subject.CommonName == e.commonName) &&
		(e.san == "" || slices.Contains(alternatives(c), e.san))
}

// alternatives returns the alternative names of a certificate.
func alternatives(c *x509.Certificate) []string {
	list := slices.Concat(c.DNSNames, c.EmailAddresses)
	for _, u := range c.URIs {
		list = append(list, u.String())
	}
	for _, ip := range c.IPAddresses {
		list = append(list, ip.String())
	}
	return list
}

// with returns a copy of p with other stamps.
func (p *policy) with(s stamps) *policy {
	c := *p
	c.stamps = s
	return &c
}

// start makes the issuers ready, which take over the keys of those of an old policy.
func (p *policy) start(g *Guard, old *policy) {
	for url, i := range p.issuers {
		var before *issuer
		if old != nil {
			before = old.issuers[url]
		}
		i.start(g, before)
	}
}

// readPolicy reads an auth file and the files that it names.
func readPolicy(set *Settings) (*policy, error) {
	r := &reader{file: set.File, getenv: set.Getenv, spaces: set.Namespaces}
	p := &policy{roles: map[string]*role{}, issuers: map[string]*issuer{}}
	root, err := r.document()
	if err != nil {
		return nil, err
	}
	var sections [4]*yaml.Node // read after the roles, wherever they are in the file
	keep := func(i int) func(*yaml.Node) error {
		return func(n *yaml.Node) error { sections[i] = n; return nil }
	}
	err = r.fields(root, "the file", map[string]func(*yaml.Node) error{
		"roles": func(n *yaml.Node) error { return r.roles(n, p) }, "tokens": keep(0), "issuers": keep(1), "certificates": keep(2), "anonymous": keep(3),
	})
	for i, read := range []func(*yaml.Node) error{
		func(n *yaml.Node) error { return r.token(n, p) }, func(n *yaml.Node) error { return r.issuer(n, p) },
		func(n *yaml.Node) error { return r.certificate(n, p) },
	} {
		if n := sections[i]; n != nil && err == nil {
			err = r.list(n, read)
		}
	}
	if n := sections[3]; n != nil && err == nil {
		p.anonymous = &Identity{Name: byAnonymous, By: byAnonymous}
		p.anonymous.roles, err = r.rolesOf(n, p)
	}
	if err != nil {
		return nil, err
	}
	if len(p.tokens)+len(p.issuers)+len(p.certificates) == 0 && p.anonymous == nil {
		return nil, r.errorf(root, "nobody could use the server: expected tokens, issuers, certificates or anonymous")
	}
	p.files, p.stamps = r.files, stampsOf(r.files)
	return p, nil
}

// roles reads the mapping of names to roles.
func (r *reader) roles(n *yaml.Node, p *policy) error {
	if n.Kind != yaml.MappingNode {
		return r.errorf(n, "roles: expected a mapping of names to roles")
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		one := &role{name: key.Value, of: r.spaces}
		if p.roles[key.Value] != nil {
			return r.errorf(key, "role '%s' is there twice", key.Value)
		}
		what := "role '" + key.Value + "'"
		err := r.fields(n.Content[i+1], what, map[string]func(*yaml.Node) error{
			"apis": func(n *yaml.Node) error { return r.list(n, func(n *yaml.Node) error { return r.group(n, what, one) }) },
			"models": func(n *yaml.Node) error {
				return r.list(n, func(n *yaml.Node) error { return r.pattern(n, "models", &one.models) })
			},
			"namespaces": func(n *yaml.Node) error {
				return r.list(n, func(n *yaml.Node) error { return r.namespace(n, what, one) })
			},
		})
		if err != nil {
			return err
		}
		if one.groups == 0 {
			return r.errorf(key, "%s: it has no apis, expected some of %s", what, groupNames())
		}
		for _, g := range wholeServer {
			if one.limited() && one.groups.has(g) {
				return r.errorf(key, "%s: '%s' concerns all models, so a role that is limited to some cannot have it; expected it in a role without models and namespaces", what, g)
			}
		}
		p.roles[key.Value] = one
	}
	return nil
}

func groupNames() string { return setOf(Groups()...).names() }

// allGroups stands for every group in a role's apis.
const allGroups = "*"

func (r *reader) group(n *yaml.Node, what string, to *role) error {
	if n.Value == allGroups {
		to.groups |= setOf(Groups()...)
		return nil
	}
	for _, g := range Groups() {
		if g.String() == n.Value {
			to.groups |= setOf(g)
			return nil
		}
	}
	return r.errorf(n, "%s: there is no API '%s', expected %s, or * for all", what, n.Value, groupNames())
}

// pattern reads a pattern of names.
func (r *reader) pattern(n *yaml.Node, what string, to *[]string) error {
	var pattern string
	if err := r.text(&pattern)(n); err != nil {
		return err
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return r.errorf(n, "the pattern '%s' of %s is invalid: * matches any text, ? a character, [a-z] a range", pattern, what)
	}
	*to = append(*to, pattern)
	return nil
}

// namespace reads a namespace of a role: a repository as --model-repository names it, or a pattern.
func (r *reader) namespace(n *yaml.Node, what string, to *role) error {
	if r.spaces == nil {
		return r.errorf(n, "%s: models have namespaces with --model-namespacing=true only, and this server has not; expected the flag, or models", what)
	}
	if err := r.pattern(n, "namespaces", &to.spaces); err != nil {
		return err
	}
	last := &to.spaces[len(to.spaces)-1]
	*last = cmp.Or(strings.TrimRight(*last, "/"), *last) // as the repository does
	return nil
}

// rolesOf reads a list of names of roles.
func (r *reader) rolesOf(n *yaml.Node, p *policy) (list []*role, err error) {
	err = r.list(n, func(n *yaml.Node) error {
		one := p.roles[n.Value]
		if one == nil {
			return r.errorf(n, "there is no role '%s', expected one of the section roles", n.Value)
		}
		list = append(list, one)
		return nil
	})
	if err == nil && len(list) == 0 {
		err = r.errorf(n, "expected the name of a role")
	}
	return list, err
}

// token reads a static token.
func (r *reader) token(n *yaml.Node, p *policy) error {
	t := token{who: &Identity{By: byToken}}
	sources := 0
	from := func(read func(n *yaml.Node, text string) error) func(*yaml.Node) error {
		return func(n *yaml.Node) error {
			sources++
			var text string
			if err := r.text(&text)(n); err != nil {
				return err
			}
			return read(n, text)
		}
	}
	err := r.fields(n, "a token", map[string]func(*yaml.Node) error{
		"name":   r.text(&t.who.Name),
		"roles":  func(n *yaml.Node) (err error) { t.who.roles, err = r.rolesOf(n, p); return err },
		"file":   from(func(n *yaml.Node, text string) error { return r.tokenFile(n, text, &t) }),
		"env":    from(func(n *yaml.Node, text string) error { return r.tokenText(n, "variable "+text, r.getenv(text), &t) }),
		"sha256": from(func(n *yaml.Node, text string) error { return r.tokenSum(n, text, &t) }),
	})
	switch {
	case err != nil:
		return err
	case t.who.Name == "":
		return r.errorf(n, "a token has no name, expected one for the logs")
	case sources != 1:
		return r.errorf(n, "token '%s': expected one of file, env and sha256, found %d", t.who.Name, sources)
	case t.who.roles == nil:
		return r.errorf(n, "token '%s' has no roles", t.who.Name)
	case slices.ContainsFunc(p.tokens, func(o token) bool { return o.sum == t.sum }):
		return r.errorf(n, "token '%s' has the value of another token", t.who.Name)
	}
	p.tokens = append(p.tokens, t)
	return nil
}

// beside returns a path, if relative, in the folder of the auth file.
func (r *reader) beside(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(r.file), name)
}

func (r *reader) tokenFile(n *yaml.Node, name string, t *token) error {
	b, err := r.readSecret(r.beside(name))
	if err != nil {
		return r.errorf(n, "the token's file: %w", err)
	}
	return r.tokenText(n, "file '"+name+"'", string(b), t)
}

// minToken is the least length of a token in bytes: shorter ones can be guessed.
const minToken = 16

func (r *reader) tokenText(n *yaml.Node, from, text string, t *token) error {
	text = strings.TrimSpace(text)
	switch {
	case len(text) < minToken:
		return r.errorf(n, "the token in %s has %d characters, expected at least %d, for example of: openssl rand -hex 32", from, len(text), minToken)
	case len(text) > maxToken:
		return r.errorf(n, "the token in %s has %d characters, expected %d at most", from, len(text), maxToken)
	case strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' }):
		return r.errorf(n, "the token in %s has a character that a header cannot carry, expected printable ASCII without spaces", from)
	}
	t.sum = sha256.Sum256([]byte(text))
	return nil
}

func (r *reader) tokenSum(n *yaml.Node, text string, t *token) error {
	if k, err := hex.Decode(t.sum[:], []byte(text[:min(len(text), 2*sha256.Size)])); err != nil || len(text) != 2*sha256.Size || k != sha256.Size {
		return r.errorf(n, "sha256: expected 64 hexadecimal digits, as of: printf %%s TOKEN | sha256sum")
	}
	return nil
}

// certificate reads an entry of the client certificates.
func (r *reader) certificate(n *yaml.Node, p *policy) error {
	c := certificate{who: &Identity{By: byCertificate}}
	err := r.fields(n, "a certificate", map[string]func(*yaml.Node) error{
		"name":        r.text(&c.who.Name),
		"subject":     r.text(&c.subject),
		"common-name": r.text(&c.commonName),
		"san":         r.text(&c.san),
		"roles":       func(n *yaml.Node) (err error) { c.who.roles, err = r.rolesOf(n, p); return err },
	})
	switch {
	case err != nil:
		return err
	case c.subject+c.commonName+c.san == "":
		return r.errorf(n, "a certificate has no subject, common-name or san, expected one at least")
	case c.who.roles == nil:
		return r.errorf(n, "a certificate has no roles")
	}
	if c.who.Name == "" {
		c.who.Name = strings.Trim(strings.Join([]string{c.subject, c.commonName, c.san}, " "), " ")
	}
	p.certificates = append(p.certificates, c)
	return nil
}
