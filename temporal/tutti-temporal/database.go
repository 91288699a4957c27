package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	schema "go.temporal.io/server/schema/sqlite"
)

// schemaVersion is the version of the schemas of Temporal's data and of its search, for example "0.11/0.1".
func schemaVersion() string { return schema.Version + "/" + schema.VisibilityVersion }

// schemaNumber is schemaVersion as a number that grows, which is stored in the database: 1000 times the minor version of
// the data plus that of the search. The major versions are 0, or are the higher digits.
func schemaNumber() (int, error) {
	var major, minor, searchMajor, searchMinor int
	if _, err := fmt.Sscanf(schemaVersion(), "%d.%d/%d.%d", &major, &minor, &searchMajor, &searchMinor); err != nil {
		return 0, fmt.Errorf("version %q of Temporal's schema: %w", schemaVersion(), err)
	}
	return (major*100+minor)*1000 + searchMajor*100 + searchMinor, nil
}

// database is the configuration of the file. A transaction is on the disk when it is acknowledged, so that neither SIGKILL
// nor a power failure loses it.
func database(file string) *config.SQL {
	return &config.SQL{PluginName: sqlite.PluginName, DatabaseName: file, ConnectAttributes: map[string]string{
		"mode": "rwc", "journal_mode": "wal", "synchronous": "full", "busy_timeout": "10000",
	}}
}

// prepare makes the database, or brings the schema of an older one up to date.
func prepare(ctx context.Context, file string) error {
	number, err := schemaNumber()
	if err != nil {
		return err
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return create(ctx, file, number)
	} else if err != nil {
		return err
	}
	db, err := connect(file)
	if err != nil {
		return err
	}
	defer db.Close() //nolint:errcheck // changes are committed before
	var now int
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&now); err != nil {
		return fmt.Errorf("it cannot be read: %w; restore a copy, or move it away to begin without jobs", err)
	}
	switch {
	case now == number:
		return nil
	case now > number:
		return fmt.Errorf("it was written by a newer tutti-temporal (schema %d, this program has %d): use that program", now, number)
	}
	part := file + ".new"
	if err := create(ctx, part, number); err != nil {
		return err
	}
	defer os.Remove(part) //nolint:errcheck // it is overwritten the next time
	return upgrade(ctx, db, part, number)
}

func connect(file string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+file)
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

// create makes a database in one step: a process that is killed meanwhile leaves none.
func create(ctx context.Context, file string, number int) error {
	part := file + ".part"
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	set := database(part)
	set.ConnectAttributes["journal_mode"], set.ConnectAttributes["synchronous"] = "memory", "off"
	if err := schema.SetupSchema(set); err != nil {
		return err
	}
	db, err := connect(part)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", number))
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(part, 0o600), flush(part)); err != nil {
		return err
	}
	return os.Rename(part, file)
}

// flush writes a file through to the disk.
func flush(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// object is a table, index or trigger and the statement that makes it.
type object struct{ kind, name, statement string }

// upgrade adds what the schema of the database at fresh has and db lacks, in one transaction.
func upgrade(ctx context.Context, db *sql.DB, fresh string, number int) error {
	model, err := connect(fresh)
	if err != nil {
		return err
	}
	defer model.Close() //nolint:errcheck // it is only read
	want, err := objects(ctx, model)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // without effect after Commit
	have, err := objects(ctx, tx)
	if err != nil {
		return err
	}
	old := map[string]object{}
	for _, o := range have {
		old[o.kind+" "+o.name] = o
	}
	for _, o := range want {
		before, ok := old[o.kind+" "+o.name]
		switch {
		case ok && before.statement == o.statement:
			continue
		case !ok:
			_, err = tx.ExecContext(ctx, o.statement)
		case o.kind == "table":
			err = extend(ctx, tx, model, o.name)
		default: // an index or a trigger has no data of its own
			_, err = tx.ExecContext(ctx, fmt.Sprintf("DROP %s %q; %s", strings.ToUpper(o.kind), o.name, o.statement))
		}
		if err != nil {
			return fmt.Errorf("%s %q cannot be brought from schema %d up to date: %w", o.kind, o.name, number, err)
		}
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", number)); err != nil {
		return err
	}
	return tx.Commit()
}

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// objects lists what a database consists of: tables first, without those that SQLite makes by itself.
func objects(ctx context.Context, db querier) ([]object, error) {
	return query(ctx, db, `SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'
		AND name NOT GLOB '*_fts_*_*' ORDER BY type <> 'table', rowid`,
		func(r *sql.Rows, o *object) error { return r.Scan(&o.kind, &o.name, &o.statement) })
}

// column is a column of a table as SQLite describes it.
type column struct {
	name, kind string
	required   bool
	value      sql.NullString // the default
	hidden     int            // 2 and 3 are computed columns, virtual and stored
}

func columns(ctx context.Context, db querier, table string) ([]column, error) {
	return query(ctx, db, fmt.Sprintf("PRAGMA table_xinfo(%q)", table), func(r *sql.Rows, c *column) error {
		var position, key int
		return r.Scan(&position, &c.name, &c.kind, &c.required, &c.value, &key, &c.hidden)
	})
}

// query returns the rows of a query.
func query[T any](ctx context.Context, db querier, text string, scan func(*sql.Rows, *T) error) (list []T, err error) {
	rows, err := db.QueryContext(ctx, text)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // Err has its error
	for rows.Next() {
		var item T
		if err := scan(rows, &item); err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	return list, rows.Err()
}

// extend adds the columns of a table that it lacks.
func extend(ctx context.Context, tx *sql.Tx, model querier, table string) error {
	want, err := columns(ctx, model, table)
	if err != nil {
		return err
	}
	have, err := columns(ctx, tx, table)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, c := range have {
		known[c.name] = true
	}
	for _, c := range want {
		switch {
		case known[c.name]:
			continue
		case c.hidden != 0 || c.required && !c.value.Valid:
			return fmt.Errorf("column %q cannot be added to rows that exist: end the jobs with the older program, then move the file away", c.name)
		}
		statement := fmt.Sprintf("ALTER TABLE %q ADD COLUMN %q %s", table, c.name, c.kind)
		if c.required {
			statement += " NOT NULL"
		}
		if c.value.Valid {
			statement += " DEFAULT " + c.value.String
		}
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
