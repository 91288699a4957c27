package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/internal/table"
)

// contextVariable is the environment variable with the name of the context.
const contextVariable = "TUTTI_CONTEXT"

// contextFlag is the flag --context. It makes parse fill in the server of the context.
type contextFlag struct {
	name string
	c    *connection
}

func (f *contextFlag) String() string { return f.name }

// Set selects a context.
func (f *contextFlag) Set(name string) error {
	f.name = name
	return nil
}

// apply selects the context of the flag, of the environment, or the current one, and uses its URL unless --url is given. Its
// secrets go to its own server only, or where the user has asked for it with --context.
func (f *contextFlag) apply(set *flag.FlagSet) error {
	name, given := f.name, f.name != ""
	if !given {
		name = os.Getenv(contextVariable)
	}
	if _, err := contextPath(); err != nil && name == "" {
		return nil // a user without a home has no contexts
	}
	file, err := readContexts()
	if err != nil {
		return err
	}
	if name == "" {
		name = file.Current
	}
	if name == "" {
		return nil
	}
	if f.c.context, err = file.get(name); err != nil {
		return err
	}
	url, visited := set.Lookup("url"), false
	set.Visit(func(g *flag.Flag) { visited = visited || g.Name == "url" })
	switch {
	case url == nil && !given:
		return nil // the server is an argument: see target
	case url != nil && !visited:
		err = url.Value.Set(f.c.context.URL)
	case url != nil && !given && !sameServer(url.Value.String(), f.c.context.URL):
		return nil
	}
	f.c.use(f.c.context)
	return err
}

// use takes over what the flags do not say.
func (c *connection) use(s *savedContext) {
	if c.used {
		return
	}
	c.used = true
	if c.cacert == "" {
		c.cacert = s.CACert
	}
	if c.cert == "" && c.key == "" {
		c.cert, c.key = s.Cert, s.Key
	}
	c.insecure = c.insecure || s.Insecure
	c.headers = append(slices.Clone(s.Headers), c.headers...)
	c.saved = bearer{s.Token, s.TokenFile}
}

// target returns the server or repository of an argument, which may be missing if there is a context.
func (c *connection) target(args []string, i int) (string, error) {
	switch {
	case i < len(args):
		if c.context != nil && isServer(args[i]) && sameServer(args[i], c.context.URL) {
			c.use(c.context)
		}
		return args[i], nil
	case c.context == nil:
		return "", usagef("expected a repository or the URL of a server, or a context: 'tutti help context' says how to make one")
	}
	c.use(c.context)
	return c.context.URL, nil
}

// sameServer reports whether two URLs have the same scheme, host and port.
func sameServer(a, b string) bool {
	u, err := client.ParseURL(a)
	v, other := client.ParseURL(b)
	return err == nil && other == nil && u.Scheme == v.Scheme && u.Host == v.Host
}

// contextName is the form of the name of a context.
var contextName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// contextCommands are the commands below `tutti context`.
func contextCommands() []command {
	return []command{
		{
			name: "add", usage: "NAME --url URL", summary: "Save how to reach a server",
			notes: "The flags for the connection are saved with the URL. With --token the token is in the file, which only you may read; with --token-file only the path is.",
			examples: []string{
				"tutti context add local --url http://127.0.0.1:8000",
				"tutti context add prod --url https://models.example:8000 --cacert ca.pem --token-file token --use",
			},
			run: (*program).contextAdd,
		},
		{
			name: "use", usage: "NAME | --none", summary: "Make a context the current one", examples: []string{"tutti context use prod", "tutti context use --none"},
			run: (*program).contextUse, complete: completeContexts,
		},
		{name: "list", summary: "List the contexts", examples: []string{"tutti context list"}, run: (*program).contextList},
		{
			name: "show", usage: "[NAME]", summary: "Print a context, by default the current one", examples: []string{"tutti context show prod"},
			run: (*program).contextShow, complete: completeContexts,
		},
		{
			name: "remove", usage: "NAME", summary: "Remove a context", examples: []string{"tutti context remove prod"},
			run: (*program).contextRemove, complete: completeContexts,
		},
	}
}

// completeContexts completes the name of a context.
func completeContexts(_ *program, _ *cobra.Command, args []string) (list []cobra.Completion) {
	file, err := readContexts()
	if err != nil || len(args) > 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(file.Contexts)) {
		list = append(list, cobra.CompletionWithDesc(name, file.Contexts[name].URL))
	}
	return list
}

func (p *program) contextAdd(_ context.Context, args []string) error {
	set, c := p.flags("context add"), &connection{}
	url := set.String("url", "", "`URL` of the server, http://, https://, grpc:// or grpcs://; HOST:PORT alone is taken as http://HOST:PORT")
	c.serverFlags(set)
	use := set.Bool("use", false, "make it the current context")
	overwrite := set.Bool("overwrite", false, "replace a context of this name")
	out := outputFlag(set, formatText, formatJSON, formatYAML)
	rest, err := arguments(set, args, 1, 1, "one name")
	switch {
	case err != nil:
		return err
	case !contextName.MatchString(rest[0]):
		return usagef("the name of the context is '%s', expected letters, digits, '.', '_' and '-'", rest[0])
	case *url == "":
		return usagef("--url is missing, expected the URL of the server")
	}
	saved, err := c.saveContext(*url)
	if err != nil {
		return err
	}
	file, err := readContexts()
	if err != nil {
		return err
	}
	if file.Contexts[rest[0]] != nil && !*overwrite {
		return usagef("there is a context '%s' already; --overwrite replaces it", rest[0])
	}
	if file.Contexts == nil {
		file.Contexts = map[string]*savedContext{}
	}
	if file.Contexts[rest[0]] = saved; *use {
		file.Current = rest[0]
	}
	if err := file.write(); err != nil {
		return err
	}
	if *use {
		return p.printCurrent(out, rest[0], saved.URL)
	}
	return out.print(p.stdout, contextRow{rest[0], saved.URL, rest[0] == currentContext(file)}, func() error {
		_, err := fmt.Fprintf(p.stdout, "Saved %s: %s. To use it: tutti context use %s, or --context %s with a command\n", rest[0], saved.URL, rest[0], rest[0])
		return err
	})
}

// printCurrent prints the context that is the current one now.
func (p *program) printCurrent(out *output, name, url string) error {
	return out.print(p.stdout, contextRow{name, url, true}, func() error {
		_, err := fmt.Fprintf(p.stdout, "The current context is %s: %s\n", name, url)
		return err
	})
}

// saveContext returns the context of the flags, whose files it reads to check them. Paths become absolute.
func (c *connection) saveContext(url string) (*savedContext, error) {
	u, err := client.ParseURL(url)
	if err != nil {
		return nil, &usageError{err}
	}
	if _, err := c.options(); err != nil {
		return nil, err
	}
	s := &savedContext{
		URL: u.String(), CACert: c.cacert, Cert: c.cert, Key: c.key, Insecure: c.insecure, Headers: c.headers,
		Token: c.given.token, TokenFile: c.given.file,
	}
	for _, path := range []*string{&s.CACert, &s.Cert, &s.Key, &s.TokenFile} {
		if *path != "" {
			if *path, err = filepath.Abs(*path); err != nil {
				return nil, err
			}
		}
	}
	return s, nil
}

func (p *program) contextUse(_ context.Context, args []string) error {
	set := p.flags("context use")
	none := set.Bool("none", false, "have no current context")
	out := outputFlag(set, formatText, formatJSON, formatYAML)
	rest, err := arguments(set, args, 0, 1, "one context")
	if err != nil {
		return err
	}
	if *none == (len(rest) == 1) {
		return misused("context use", "one context, or --none")
	}
	file, err := readContexts()
	if err != nil {
		return err
	}
	if *none {
		file.Current = ""
		if err := file.write(); err != nil {
			return err
		}
		return out.print(p.stdout, (*contextRow)(nil), func() error { return nil })
	}
	s, err := file.get(rest[0])
	if err != nil {
		return err
	}
	file.Current = rest[0]
	if err := file.write(); err != nil {
		return err
	}
	return p.printCurrent(out, rest[0], s.URL)
}

func (p *program) contextRemove(_ context.Context, args []string) error {
	set := p.flags("context remove")
	out := outputFlag(set, formatText, formatJSON, formatYAML)
	rest, err := arguments(set, args, 1, 1, "one context")
	if err != nil {
		return err
	}
	file, err := readContexts()
	if err != nil {
		return err
	}
	removed, err := file.get(rest[0])
	if err != nil {
		return err
	}
	delete(file.Contexts, rest[0])
	if file.Current == rest[0] {
		file.Current = ""
	}
	if err := file.write(); err != nil {
		return err
	}
	return out.print(p.stdout, contextRow{rest[0], removed.URL, false}, func() error { return nil })
}

// contextRow is a context as list prints it.
type contextRow struct {
	Name    string `json:"name"`
	URL     string `json:"url"`
	Current bool   `json:"current"`
}

func (p *program) contextList(_ context.Context, args []string) error {
	set := p.flags("context list")
	out := outputFlag(set, formatTable, formatJSON, formatYAML)
	if _, err := arguments(set, args, 0, 0, "no arguments"); err != nil {
		return err
	}
	file, err := readContexts()
	if err != nil {
		return err
	}
	list := []contextRow{}
	for _, name := range slices.Sorted(maps.Keys(file.Contexts)) {
		list = append(list, contextRow{name, file.Contexts[name].URL, name == currentContext(file)})
	}
	return out.print(p.stdout, list, func() error {
		rows := [][]string{{"NAME", "URL", "CURRENT"}}
		for _, r := range list {
			rows = append(rows, []string{r.Name, r.URL, map[bool]string{true: "*"}[r.Current]})
		}
		table.Left(p.stdout, rows)
		return nil
	})
}

// currentContext returns the name of the context of the environment, or of the file.
func currentContext(f *contextFile) string {
	if name := os.Getenv(contextVariable); name != "" {
		return name
	}
	return f.Current
}

// hiddenToken is printed in place of a token.
const hiddenToken = "(hidden)"

func (p *program) contextShow(_ context.Context, args []string) error {
	set := p.flags("context show")
	out := outputFlag(set, formatText, formatYAML, formatJSON)
	rest, err := arguments(set, args, 0, 1, "at most one context")
	if err != nil {
		return err
	}
	file, err := readContexts()
	if err != nil {
		return err
	}
	name := currentContext(file)
	if len(rest) == 1 {
		name = rest[0]
	}
	if name == "" {
		return &failure{exitNotFound, errors.New("there is no current context; 'tutti context list' prints those that exist")}
	}
	s, err := file.get(name)
	if err != nil {
		return err
	}
	if s.Token != "" {
		s.Token = hiddenToken
	}
	return out.print(p.stdout, s, func() error { return writeYAML(p.stdout, s) })
}
