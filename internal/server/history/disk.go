package history

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tutti-server/tutti/core/status"
)

// FileName returns the name of the file of a server in the data folder, which several servers may share: each has the file of its HTTP port,
// which the next server at that port continues. A damaged file is renamed: ".damaged" is appended.
func FileName(port int) string { return fmt.Sprintf("history-%d.db", port) }

const (
	retention  = 7 * 24 * time.Hour
	maxBytes   = 256 << 20   // of the file
	pruneEvery = time.Hour   // the time between two removals of what is too old
	backlog    = 16          // the most frames that wait for the file
	jump       = time.Minute // a difference of the clock of the wall, in an hour, that nobody's quartz has
	busyMillis = 5000        // the longest wait for another process that writes
	schema     = 1           // the version of the tables
)

// tables are those of the file. A frame is a row; its points are encoded as encodePoints says, with the ids of names.
const tables = `
CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, ensemble INTEGER NOT NULL, last INTEGER NOT NULL);
CREATE TABLE frames (start_ns INTEGER PRIMARY KEY, end_ns INTEGER NOT NULL, server TEXT NOT NULL, points BLOB NOT NULL);
PRAGMA user_version = 1;`

// minuteFrame is a frame for the file, on the clock of the wall, with the names of its points.
type minuteFrame struct {
	frame
	names []name
}

// disk is the file with the past. It is safe for concurrent use. The methods of nil do nothing.
//
// A failed write is logged when it begins and when it ends; its frame is lost for the file. A file that is damaged is put aside, and a new one
// begun.
type disk struct {
	path  string
	log   *slog.Logger
	clock func() (int64, time.Time)
	queue chan minuteFrame
	done  sync.WaitGroup
	// waiting counts the frames in queue and the one that is written.
	waiting sync.WaitGroup

	mu      sync.Mutex // one user at a time
	db      *sql.DB    // nil while there is none
	ids     map[string]*fileName
	failing bool // the last write failed
	first   int64
	pruned  int64 // when the last removal was
	epoch   int64 // the time of the wall at which the other clock was 0, at the last removal
}

// fileName is a name in the file.
type fileName struct {
	id       int64
	last     int64 // a time at which it was used, seconds since 1970; at most a day old
	ensemble bool
}

// openDisk opens the file, or creates it.
func openDisk(path string, log *slog.Logger, clock func() (int64, time.Time)) *disk {
	d := &disk{path: path, log: log, clock: clock, queue: make(chan minuteFrame, backlog)}
	mono, wall := clock()
	d.pruned, d.epoch = mono-int64(pruneEvery), wall.UnixNano()-mono
	d.mu.Lock()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = d.retry(d.open)
	}
	d.failed(err)
	d.mu.Unlock()
	d.done.Go(d.run)
	return d
}

// open opens the file if it is not open; mu is held.
func (d *disk) open() error {
	if d.db != nil {
		return nil
	}
	q := url.Values{"_pragma": {fmt.Sprintf("busy_timeout(%d)", busyMillis), "journal_mode(WAL)", "synchronous(NORMAL)", "journal_size_limit(16777216)"}}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", OmitHost: true, Path: d.path, RawQuery: q.Encode()}).String())
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	if err := d.check(db); err != nil {
		return errors.Join(err, db.Close())
	}
	d.db, d.ids = db, map[string]*fileName{}
	return nil
}

// check creates the tables of a new file, and refuses a newer one.
func (d *disk) check(db *sql.DB) error {
	version := 0
	if err := db.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version > schema {
		return fmt.Errorf("the file '%s' has version %d, expected at most %d: it is of a newer server; move it, or use another --data-dir", d.path, version, schema)
	}
	if version == 0 {
		if _, err := db.Exec("BEGIN IMMEDIATE;" + tables + "COMMIT;"); err != nil {
			_, _ = db.Exec("ROLLBACK") // there may be nothing to roll back
			return err
		}
	}
	return db.QueryRow("SELECT coalesce(min(start_ns), 0) FROM frames").Scan(&d.first)
}

// damaged reports whether an error says that the file is no database, or broken.
func damaged(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return false
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return true
	}
	return false
}

// retry calls f. If the file is damaged it puts it aside and calls f again with a new one; mu is held.
func (d *disk) retry(f func() error) error {
	err := f()
	if !damaged(err) {
		return err
	}
	aside := d.path + ".damaged"
	d.log.Error("the file of the dashboard's history is damaged: it is put aside, and a new one is begun",
		slog.String("file", d.path), slog.String("aside", aside), slog.String("error", err.Error()))
	_ = d.closeFile()    // what is damaged cannot be closed well
	_ = os.Remove(aside) // of an earlier time
	if err := os.Rename(d.path, aside); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, more := range []string{"-wal", "-shm"} { // they belong to the damaged file
		if err := os.Remove(d.path + more); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return f()
}

// failed logs an error that did not occur before, and its end; mu is held.
func (d *disk) failed(err error) {
	if err != nil && !d.failing {
		d.log.Error("the dashboard's history is not stored: expected a folder that can be written, with free space; it is in memory only",
			slog.String("file", d.path), slog.String("error", err.Error()))
	}
	if err == nil && d.failing {
		d.log.Info("the dashboard's history is stored again", slog.String("file", d.path))
	}
	d.failing = err != nil
}

// enqueue passes a frame to be written. It does not block: while the disk takes too long, frames are dropped.
func (d *disk) enqueue(f minuteFrame) {
	if d == nil {
		return
	}
	d.waiting.Add(1)
	select {
	case d.queue <- f:
	default:
		d.waiting.Done()
		d.log.Warn("the disk of the dashboard's history is too slow: a minute is not stored", slog.String("file", d.path))
	}
}

// run writes frames until close.
func (d *disk) run() {
	for f := range d.queue {
		d.mu.Lock()
		err := d.retry(func() error { return d.write(&f) })
		if err == nil {
			err = d.retry(d.prune)
		}
		d.failed(err)
		d.mu.Unlock()
		d.waiting.Done()
	}
}

// close writes what waits and closes the file.
func (d *disk) close() error {
	if d == nil {
		return nil
	}
	close(d.queue)
	d.done.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closeFile()
}

func (d *disk) closeFile() error {
	if d.db == nil {
		return nil
	}
	err := d.db.Close()
	d.db = nil
	return err
}

// write writes a frame; mu is held.
func (d *disk) write(f *minuteFrame) error {
	if err := d.open(); err != nil {
		return err
	}
	tx, err := d.db.Begin()
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	points := slices.Clone(f.points)
	used := make(map[string]*fileName, len(points)) // become known with the commit
	for i := range points {
		n, err := d.nameIn(tx, &f.names[i], f.end/1e9)
		if err != nil {
			return err
		}
		used[f.names[i].name] = n
		points[i].series = uint32(n.id) //nolint:gosec // there are not so many
	}
	sortPoints(points)
	if _, err := tx.Exec("INSERT OR REPLACE INTO frames (start_ns, end_ns, server, points) VALUES (?, ?, ?, ?)", f.start, f.end, encodeServer(&f.server), encodePoints(points)); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	maps.Copy(d.ids, used)
	if d.first == 0 || f.start < d.first {
		d.first = f.start
	}
	return nil
}

const day = 24 * 60 * 60

// nameIn returns the name of a model in the file, which is written if it is new or its last use is a day old.
func (d *disk) nameIn(tx *sql.Tx, m *name, now int64) (*fileName, error) {
	if n := d.ids[m.name]; n != nil && now-n.last < day && n.ensemble == m.ensemble {
		return n, nil
	}
	n := &fileName{last: now, ensemble: m.ensemble}
	err := tx.QueryRow("INSERT INTO names (name, ensemble, last) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET ensemble = excluded.ensemble, last = excluded.last RETURNING id",
		m.name, m.ensemble, now).Scan(&n.id)
	return n, err
}

// prune removes what is too old, and the oldest of what is too much; mu is held. After a jump of the clock nothing is removed by age for a
// day, so that a wrong clock that is set right soon does not cost the past.
func (d *disk) prune() error {
	mono, wall := d.clock()
	if mono-d.pruned < int64(pruneEvery) {
		return nil
	}
	d.pruned = mono
	if epoch := wall.UnixNano() - mono; max(epoch-d.epoch, d.epoch-epoch) > int64(jump) {
		d.log.Warn("the clock of the machine has jumped: nothing of the dashboard's history is removed for a day", slog.Duration("by", time.Duration(epoch-d.epoch)))
		d.epoch, d.pruned = epoch, mono+int64(retention/7)
		return nil
	}
	cut := wall.Add(-retention).UnixNano()
	if _, err := d.db.Exec("DELETE FROM frames WHERE start_ns < ? OR start_ns > ?", cut, wall.Add(time.Hour).UnixNano()); err != nil {
		return err
	}
	var size, spare, page int64
	for pragma, to := range map[string]*int64{"page_count": &size, "freelist_count": &spare, "page_size": &page} {
		if err := d.db.QueryRow("PRAGMA " + pragma).Scan(to); err != nil {
			return err
		}
	}
	if (size-spare)*page > maxBytes {
		if _, err := d.db.Exec("DELETE FROM frames WHERE start_ns IN (SELECT start_ns FROM frames ORDER BY start_ns LIMIT (SELECT count(*) / 20 + 1 FROM frames))"); err != nil {
			return err
		}
	}
	if _, err := d.db.Exec("DELETE FROM names WHERE last < ?", cut/1e9-day); err != nil {
		return err
	}
	for name, n := range d.ids {
		if n.last < cut/1e9-day {
			delete(d.ids, name)
		}
	}
	return d.db.QueryRow("SELECT coalesce(min(start_ns), 0) FROM frames").Scan(&d.first)
}

// oldest returns the start of the oldest frame of the file, 0 for none.
func (d *disk) oldest() int64 {
	if d == nil {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.first
}

// read visits the frames of the file that end before to and not before from.
func (d *disk) read(ctx context.Context, from, to int64, visit func(*frame, func(uint32) *name)) error {
	if d == nil || from >= to {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// A file that cannot be read is logged; the figures in memory are shown. Frames that were visited before it broke count.
	err := d.retry(func() error { return d.scan(ctx, from, to, visit) })
	if ctx.Err() != nil {
		return status.ErrCancelled
	}
	if err != nil {
		d.failed(err)
	}
	return nil
}

// scan is read without the lock.
func (d *disk) scan(ctx context.Context, from, to int64, visit func(*frame, func(uint32) *name)) error {
	if err := d.open(); err != nil {
		return err
	}
	known := map[uint32]*name{}
	rows, err := d.db.QueryContext(ctx, "SELECT id, name, ensemble FROM names")
	if err != nil {
		return err
	}
	for rows.Next() {
		id, n := uint32(0), &name{}
		if err := rows.Scan(&id, &n.name, &n.ensemble); err != nil {
			return errors.Join(err, rows.Close())
		}
		known[id] = n
	}
	if err := rows.Err(); err != nil {
		return err
	}
	unknown := &name{name: "(unknown)"}
	named := func(id uint32) *name {
		if n := known[id]; n != nil {
			return n
		}
		return unknown
	}
	const longest = int64(2 * minute) // of a frame
	rows, err = d.db.QueryContext(ctx, "SELECT start_ns, end_ns, server, points FROM frames WHERE start_ns > ? AND start_ns < ? ORDER BY start_ns", from-longest, to)
	if err != nil {
		return err
	}
	for rows.Next() {
		var f frame
		var server, points sql.RawBytes
		if err := rows.Scan(&f.start, &f.end, &server, &points); err != nil {
			return errors.Join(err, rows.Close())
		}
		if f.end <= from || f.start >= f.end || f.start >= to-int64(step)/2 {
			continue
		}
		f.server, f.points = decodeServer(string(server)), decodePoints(points)
		visit(&f, named)
	}
	return rows.Err()
}
