package redis

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The variables that hold credentials, as for Triton's cache; they go before settings.
const (
	userVariable     = "TRITONCACHE_REDIS_USERNAME"
	passwordVariable = "TRITONCACHE_REDIS_PASSWORD" //nolint:gosec // the name of a variable
)

// Config is the address of the server, its credentials and its timeouts.
type Config struct {
	// Address is host:port.
	Address        string
	User, Password string
	DB             int
	// ConnectTimeout bounds making a connection, SocketTimeout a lookup.
	ConnectTimeout, SocketTimeout time.Duration
	// TTL is the lifetime of an entry, 0 for the server's own eviction.
	TTL time.Duration
}

const (
	defaultConnect = time.Second
	defaultSocket  = 100 * time.Millisecond
	maxTimeout     = 1 << 31
	maxPort        = 65535
	maxDB          = 1 << 20
)

// settings are those of --cache-config redis, each with its parser.
var settings = map[string]func(c *Config, v string) error{
	"host":     func(c *Config, v string) error { return c.host(v) },
	"port":     func(c *Config, v string) error { return c.port(v) },
	"user":     func(c *Config, v string) error { c.User = v; return nil },
	"password": func(c *Config, v string) error { c.Password = v; return nil },
	"db": func(c *Config, v string) (err error) {
		c.DB, err = number(v, 0, maxDB)
		return err
	},
	"connect_timeout": func(c *Config, v string) error { return duration(&c.ConnectTimeout, v, time.Millisecond, 1) },
	"socket_timeout":  func(c *Config, v string) error { return duration(&c.SocketTimeout, v, time.Millisecond, 1) },
	"ttl":             func(c *Config, v string) error { return duration(&c.TTL, v, time.Second, 0) },
}

// Keys lists the names of the settings, sorted.
func Keys() []string { return slices.Sorted(maps.Keys(settings)) }

// Parse parses the settings of --cache-config redis: host and port, and optionally user, password, db,
// connect_timeout and socket_timeout in milliseconds, and ttl in seconds. For example, host=cache.local, port=6379
// and ttl=60. environ holds variables as os.Environ returns them.
func Parse(config map[string]string, environ []string) (Config, error) {
	c := Config{ConnectTimeout: defaultConnect, SocketTimeout: defaultSocket}
	for _, key := range slices.Sorted(maps.Keys(config)) { // host comes before port
		set := settings[key]
		if set == nil {
			return c, fmt.Errorf("unknown setting '%s' of --cache-config redis, expected one of: %s", key, strings.Join(slices.Sorted(maps.Keys(settings)), ", "))
		}
		if err := set(&c, config[key]); err != nil {
			return c, fmt.Errorf("--cache-config redis,%s=%s: %w", key, config[key], err)
		}
	}
	for _, key := range []string{"host", "port"} {
		if config[key] == "" {
			return c, fmt.Errorf("--cache-config redis has no %s, expected redis,%s=VALUE", key, key)
		}
	}
	for _, e := range environ {
		switch name, v, _ := strings.Cut(e, "="); name {
		case userVariable:
			c.User = v
		case passwordVariable:
			c.Password = v
		}
	}
	return c, nil
}

func (c *Config) host(v string) error {
	if strings.ContainsAny(v, " /@") {
		return errors.New("expected the name or address of a host")
	}
	c.Address = v
	return nil
}

func (c *Config) port(v string) error {
	n, err := number(v, 1, maxPort)
	c.Address = net.JoinHostPort(strings.Trim(c.Address, "[]"), strconv.Itoa(n))
	return err
}

func number(v string, least, most int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("expected a number from %d to %d", least, most)
	}
	return n, nil
}

func duration(d *time.Duration, v string, unit time.Duration, least int) error {
	n, err := number(v, least, maxTimeout)
	*d = time.Duration(n) * unit
	return err
}
