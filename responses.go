package tutti

import (
	"log/slog"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/cache/local"
	"github.com/tutti-server/tutti/internal/cache/redis"
	"github.com/tutti-server/tutti/internal/options"
)

// responseCache returns the cache that the options name, nil for none.
func responseCache(o *options.Cache, alloc tensor.Allocator, log *slog.Logger) cache.Cache {
	switch {
	case o.Local > 0:
		return local.New(local.Settings{Size: o.Local, Alloc: alloc, Log: log})
	case o.Redis.Address != "":
		return redis.New(redis.Settings{Config: o.Redis, Alloc: alloc, Log: log})
	}
	return nil
}

// closeCache closes a cache, if there is one.
func closeCache(c cache.Cache) error {
	if c == nil {
		return nil
	}
	return c.Close()
}
