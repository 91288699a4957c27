package options

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/cache/local"
	"github.com/tutti-server/tutti/internal/cache/redis"
)

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
