package options

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/cache/local"
	"github.com/tutti-server/tutti/internal/cache/redis"
)

// keyComplete is the setting for all backends that --disable-auto-complete-config stands for.
const keyComplete = "auto-complete-config"

// BackendConfig holds the settings of backends by name; the empty name holds those for every backend. As a flag it
// may be repeated.
type BackendConfig map[string]map[string]string

// String returns an empty text: there is no default to print.
func (BackendConfig) String() string { return "" }

// Set adds a setting: backend,key=value, or for every backend key=value or ,key=value.
func (c BackendConfig) Set(s string) error {
	name, setting, ok := strings.Cut(s, ",")
	if !ok || strings.Contains(name, "=") {
		name, setting = "", s
	}
	key, value, ok := strings.Cut(setting, "=")
	if !ok || key == "" || value == "" {
		return fmt.Errorf("--backend-config option format is '<backend name>,<setting>=<value>'. Got %s", s)
	}
	put((*map[string]map[string]string)(&c), name, key, value)
	return nil
}

// SetDirectory sets the folder of libraries made for Triton. The default one is no setting.
func (c BackendConfig) SetDirectory(folder string) error {
	if folder == backends.DefaultDirectory {
		delete(c[backends.LibraryBackend], backends.KeyDirectory)
		return nil
	}
	return c.Set(backends.LibraryBackend + "," + backends.KeyDirectory + "=" + folder)
}

// Args returns the settings as flags of another program of ours.
func (c BackendConfig) Args() []string {
	var args []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		for _, key := range slices.Sorted(maps.Keys(c[name])) {
			args = append(args, "--backend-config="+name+","+key+"="+c[name][key])
		}
	}
	return args
}

// Settings returns the settings of each backend, and of each other name: its own, and those for every backend that it reads and does not
// override. A setting that no backend reads gives a notice, no error, since it may be meant for a backend that this
// program was built without.
func (c BackendConfig) Settings(r *backends.Registry) (map[string]map[string]string, []Notice) {
	settings := map[string]map[string]string{}
	for _, name := range r.Names() {
		settings[name] = map[string]string{}
		for _, key := range r.ByName(name).ConfigKeys {
			if v, ok := c[""][key]; ok {
				settings[name][key] = v
			}
		}
		maps.Copy(settings[name], c[name])
	}
	for name, values := range c { // of a library made for Triton
		if name != "" && r.ByName(name) == nil {
			settings[name] = maps.Clone(values)
		}
	}
	var notices []Notice
	for _, name := range slices.Sorted(maps.Keys(c)) {
		for _, key := range slices.Sorted(maps.Keys(c[name])) {
			if text := unread(r, name, key); text != "" {
				notices = append(notices, Notice{Option: "--backend-config " + strings.TrimPrefix(name+","+key, ","), Text: text})
			}
		}
	}
	return settings, notices
}

// unread returns the reason that a setting has no effect, empty if it has one.
func unread(r *backends.Registry, name, key string) string {
	f := r.ByName(name)
	switch {
	case name == "" && key == keyComplete:
	case name == "":
		var all []string
		for _, name := range r.Names() {
			all = append(all, r.ByName(name).ConfigKeys...)
		}
		slices.Sort(all)
		if !slices.Contains(all, key) {
			return "accepted without effect: no backend reads this key." + config.DidYouMean(key, slices.Compact(all))
		}
	case f == nil:
		return "no effect unless a model has " + backends.LibraryFile(name) + ": the backends that are built in are " + strings.Join(r.Names(), ", ") + "." + config.DidYouMean(name, r.Names())
	case !slices.Contains(f.ConfigKeys, key):
		return notRead("backend", key, f.ConfigKeys)
	}
	return ""
}

// notRead is the text of a setting that nothing reads.
func notRead(who, key string, keys []string) string {
	text := "accepted without effect: the " + who + " does not read this key"
	if len(keys) > 0 {
		text += ", expected one of " + strings.Join(keys, ", ")
	}
	return text + "." + config.DidYouMean(key, keys)
}

// The names of the caches.
const (
	cacheLocal = "local"
	cacheRedis = "redis"
)

func (o *Options) cacheFlags() []Flag {
	return grouped("Response cache",
		Flag{
			Name: "cache-config", Arg: "cache,key=value", Many: true, set: o.cacheConfig,
			Help: "Cache of the responses of models with response_cache: local,size=BYTES, or redis,host=HOST and redis,port=PORT, " +
				"with user, password, db, connect_timeout and socket_timeout (ms), ttl (s)",
		},
		Flag{
			Name: "response-cache-byte-size", Arg: argBytes, Instead: "--cache-config local,size=BYTES", Help: "Size of the local response cache; 0 for none", set: o.cacheBytes,
		},
	)
}

func (o *Options) cacheConfig(value string) error {
	if name, _, _ := strings.Cut(value, ","); name == value || name == "" {
		return fmt.Errorf("No cache specified. --cache-config option format is <cache name>,<setting>=<value>. Got %s", value) //nolint:staticcheck // Triton's words
	}
	name, key, v, err := triple("cache-config", "<cache name>,<setting>=<value>", ",", value)
	if err != nil {
		return err
	}
	if name != cacheLocal && name != cacheRedis {
		return fmt.Errorf("unsupported: --cache-config %s, libtritoncache_%s.so is not loaded, expected one of: %s, %s", name, name, cacheLocal, cacheRedis)
	}
	put(&o.Cache.Settings, name, key, v)
	return nil
}

func (o *Options) cacheBytes(value string) error {
	n, err := parseInt(value, 0, 1<<62)
	if err != nil || n == 0 {
		return err
	}
	return o.cacheConfig(cacheLocal + ",size=" + strconv.FormatInt(n, 10))
}

// finishCache reads the settings of the cache, of which there may be one. An unknown setting gives a notice, or
// with StrictParameters an error.
func (o *Options) finishCache(environ []string) (err error) {
	c := &o.Cache
	names := slices.Sorted(maps.Keys(c.Settings))
	switch {
	case len(names) == 0:
		return nil
	case len(names) > 1:
		return errors.New("found multiple cache configurations, but only a single cache is currently supported: --cache-config names " +
			strings.Join(names, " and "))
	}
	c.Name = names[0]
	unread, err := o.unreadCache(c.Settings[c.Name])
	if err != nil {
		return err
	}
	if c.Name == cacheLocal {
		c.Local, err = local.Parse(c.Settings[c.Name])
	} else {
		c.Redis, err = redis.Parse(c.Settings[c.Name], environ)
	}
	c.Settings = nil
	if err != nil {
		return errors.New(strings.Join(append([]string{err.Error()}, unread...), "; ")) // perhaps a misspelled setting is the reason
	}
	return nil
}

// unreadCache removes the settings that the cache does not read, and returns a sentence about each.
func (o *Options) unreadCache(settings map[string]string) (unread []string, err error) {
	known := []string{"size"}
	if o.Cache.Name == cacheRedis {
		known = redis.Keys()
	}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if slices.Contains(known, key) {
			continue
		}
		what := fmt.Sprintf("unknown setting '%s' of --cache-config %s, expected one of: %s.%s", key, o.Cache.Name, strings.Join(known, ", "), config.DidYouMean(key, known))
		if o.StrictParameters {
			return nil, errors.New(what)
		}
		unread = append(unread, what)
		delete(settings, key)
		o.notice("--cache-config "+o.Cache.Name+","+key, notRead("cache", key, known))
	}
	return unread, nil
}
