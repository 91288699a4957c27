package main

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"go.temporal.io/server/common/log/tag"
)

// logger passes Temporal's log on.
type logger struct {
	to    *slog.Logger
	quiet atomic.Bool // while the server ends: its services complain about each other then
}

// known starts the messages that are no news here.
const known = "HTTP API port has not been set"

func (l *logger) write(level slog.Level, msg string, tags []tag.Tag) {
	if l.quiet.Load() || !l.to.Enabled(context.Background(), level) || strings.HasPrefix(msg, known) {
		return
	}
	attrs := make([]slog.Attr, 0, len(tags))
	for _, t := range tags {
		attrs = append(attrs, slog.Any(t.Key(), t.Value()))
	}
	l.to.LogAttrs(context.Background(), level, msg, attrs...)
}

func (l *logger) Debug(msg string, tags ...tag.Tag)  { l.write(slog.LevelDebug, msg, tags) }
func (l *logger) Info(msg string, tags ...tag.Tag)   { l.write(slog.LevelInfo, msg, tags) }
func (l *logger) Warn(msg string, tags ...tag.Tag)   { l.write(slog.LevelWarn, msg, tags) }
func (l *logger) Error(msg string, tags ...tag.Tag)  { l.write(slog.LevelError, msg, tags) }
func (l *logger) DPanic(msg string, tags ...tag.Tag) { l.write(slog.LevelError, msg, tags) }

func (l *logger) Panic(msg string, tags ...tag.Tag) {
	l.write(slog.LevelError, msg, tags)
	panic(msg)
}

// Fatal ends the process, as Temporal expects. For example, when a port was taken by another program meanwhile.
func (l *logger) Fatal(msg string, tags ...tag.Tag) {
	l.write(slog.LevelError, msg, tags)
	os.Exit(1)
}
