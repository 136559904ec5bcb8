package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/serverlayout"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/node/control"
	"github.com/muster-fleet/muster/server/node/replica"
	"github.com/muster-fleet/muster/server/node/selfupgrade"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/elastic"
	"github.com/muster-fleet/muster/server/store/migrate"
	"github.com/muster-fleet/muster/server/store/sqlite"
)

// errReplace means that the process has to be replaced by the machine's current version.
var errReplace = errors.New("the process has to be replaced")

// upgradeMachine is what an upgrade of the servers does on this machine, for one process of
// `muster server`. It implements selfupgrade.Machine.
type upgradeMachine struct {
	version string
	config  app.Config
	log     *slog.Logger

	mu    sync.Mutex
	close func() error // closes the store, once it is open
}

// ownLayout returns the layout in which this program is installed, nil for one elsewhere.
func ownLayout() (*serverlayout.Layout, error) {
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return nil, err
	}
	return serverlayout.Of(disk.OS{}, self, programVersion)
}

// open opens the store when the server may serve. If the servers are being upgraded, it
// waits until then, or returns errReplace. stop ends what it has started besides.
func (m *upgradeMachine) open(ctx context.Context) (s store.Store, stop func(), err error) {
	records := selfupgrade.Records{Disk: disk.OS{}, Data: m.config.Data, Log: m.log}
	record, err := records.Read()
	if err != nil {
		return nil, nil, err
	}
	if to := record.AtStart(m.version, nil); to != "" {
		return nil, nil, m.replaceBy(ctx, to)
	}
	// Other servers may be changing the schema: it stays as it is until this one may serve.
	held := record.Run != ""
	s, err = openStoreAs(ctx, m.config, held)
	if to := record.AtStart(m.version, err); to != "" {
		m.log.Info("the store has the schema of another version, to which the servers are being upgraded", "version", to, "error", err)
		return nil, nil, m.replaceBy(ctx, to)
	}
	if err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	m.close = sync.OnceValue(s.Close)
	m.mu.Unlock()
	if stop, err = serveControl(m.config, s, m.log); err == nil {
		err = m.hold(ctx, s, records)
	}
	if err == nil && held && m.config.Store.Elasticsearch != nil {
		if err = m.close(); err == nil {
			s, err = openStore(ctx, m.config)
		}
	}
	if err != nil {
		if stop != nil {
			stop()
		}
		return nil, nil, errors.Join(err, m.close())
	}
	return s, stop, nil
}

// replaceBy makes a version the current one, and returns errReplace.
func (m *upgradeMachine) replaceBy(ctx context.Context, to string) error {
	if err := m.Switch(ctx, to); err != nil {
		return fmt.Errorf("the servers were upgraded to %s, which this machine cannot run: %w", to, err)
	}
	return errReplace
}

// serveControl serves the control socket of an embedded store.
func serveControl(config app.Config, s store.Store, log *slog.Logger) (stop func(), err error) {
	if config.Store.Elasticsearch != nil {
		return func() {}, nil
	}
	stop, err = control.Serve(config.Data, storeOperations{s}, log)
	if errors.Is(err, errors.ErrUnsupported) {
		log.Warn("this system has no control socket: stop the server before you run `muster admin-key` and other commands on its data")
		return func() {}, nil
	}
	return stop, err
}

// hold waits until the server may serve.
func (m *upgradeMachine) hold(ctx context.Context, s store.Store, records selfupgrade.Records) error {
	id, err := replica.OpenID(disk.OS{}, m.config.Data)
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	step, err := selfupgrade.New(selfupgrade.Config{
		Upgrades: s.ServerUpgrades(), Servers: s.Servers(), Leases: s.Leases(), Audit: s.Audit(), Records: records, Machine: m,
		Self: selfupgrade.Me{ID: id, Host: host, Version: m.version}, Log: m.log,
	}).Hold(ctx)
	if err == nil && step == selfupgrade.Replace {
		err = errReplace
	}
	return err
}

// replaceProcess replaces this process by the program of the machine's current version.
func replaceProcess(ctx context.Context) error {
	l, err := ownLayout()
	if err != nil {
		return err
	}
	if l == nil {
		return errors.New("this server does not run from an installation, and cannot replace itself: start it again")
	}
	current, err := l.Current()
	if err != nil {
		return err
	}
	// Otherwise a program that prints another version than its folder would be run for ever.
	if err := l.Check(ctx, current); err != nil {
		return err
	}
	return fmt.Errorf("replace this process by %s: %w: start the server again", l.CurrentProgram(), execute(l.CurrentProgram()))
}

// Check implements selfupgrade.Machine.
func (m *upgradeMachine) Check(ctx context.Context, to string) error {
	l, err := ownLayout()
	switch {
	case err != nil:
		return err
	case l == nil:
		return selfupgrade.NoMachine{}.Check(ctx, to)
	case !canReplace:
		return errors.New("its system cannot replace a process by another program: stop all servers, and run `muster server versions switch` on each machine")
	}
	current, err := l.Current()
	switch {
	case err != nil:
		return err
	case current != m.version:
		return fmt.Errorf("it runs %s, and the current version of its machine is %s: restart it first", m.version, current)
	}
	if err := manifest.CheckStep(m.version, to); err != nil {
		return err
	}
	if err := l.CheckMove(ctx, to); err != nil {
		return err
	}
	if err := m.checkConfig(ctx, l.Program(to)); err != nil {
		return err
	}
	schema, err := m.schemaOf(ctx, l, to)
	if err != nil || schema >= m.schema() {
		return err
	}
	if m.config.Store.Elasticsearch != nil {
		return elastic.CheckDowngrade(schema)
	}
	return sqlite.CheckDowngrade(schema)
}

// checkConfig has the program of another version check this server's configuration. Otherwise a key that it
// does not know would be found only after the commit point, when nothing serves.
func (m *upgradeMachine) checkConfig(ctx context.Context, program string) error {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	args := []string{"server", "--check", "--data", m.config.Data}
	if m.config.File != "" {
		args = append(args, "--config", m.config.File)
	}
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s does not accept the configuration %s, and would not start: %s (%w)", program, cmp.Or(m.config.File, "without a file"), text, err)
}

// schemas are the newest schemas that a program writes, as `muster server schema` prints
// them.
type schemas struct {
	SQLite        int `json:"sqlite"`
	Elasticsearch int `json:"elasticsearch"`
}

func ownSchemas() schemas { return schemas{sqlite.NewestSchema(), elastic.NewestSchema()} }

func (s schemas) of(config app.Config) int {
	if config.Store.Elasticsearch != nil {
		return s.Elasticsearch
	}
	return s.SQLite
}

func (m *upgradeMachine) schema() int { return ownSchemas().of(m.config) }

// schemaOf asks the program of a version for its schema.
func (m *upgradeMachine) schemaOf(ctx context.Context, l *serverlayout.Layout, version string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, l.Program(version), "server", "schema", "-o", "json").Output()
	var s schemas
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		return 0, fmt.Errorf("%s does not say which schema it has (%w): version %s does not know `muster server upgrade`. Stop all servers, and run `muster server versions switch %s` on each machine", l.Program(version), err, version, version)
	}
	return s.of(m.config), nil
}

// Backup implements selfupgrade.Machine. A backup that is there is of an earlier try, and
// whole: nothing has changed since.
func (m *upgradeMachine) Backup(ctx context.Context, u fleet.ServerUpgrade) (string, error) {
	if m.config.Store.Elasticsearch != nil {
		return m.copyIndices(ctx, u)
	}
	dir := filepath.Join(m.config.Data, backupsFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	file := filepath.Join(dir, selfupgrade.BackupName(u.To, u.Run))
	if _, err := os.Lstat(file); err == nil {
		return file, nil
	}
	// Folders of a try that was killed have copies of the store. The data folder belongs to
	// this process.
	left, err := filepath.Glob(filepath.Join(dir, backupFolder+"*"))
	if err != nil {
		return "", err
	}
	for _, path := range left {
		if err := os.RemoveAll(path); err != nil {
			return "", err
		}
	}
	out, err := writeBackup(ctx, file, m.config, m.version, false)
	return out.File, err
}

// copyIndices copies all documents to indices with another prefix.
func (m *upgradeMachine) copyIndices(ctx context.Context, u fleet.ServerUpgrade) (place string, err error) {
	o, err := elasticOptions(m.config.Store.Elasticsearch)
	if err != nil {
		return "", err
	}
	asIs := o
	asIs.AsIs = true
	from, err := elastic.Open(ctx, asIs)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	prefix := cmp.Or(o.Prefix, elastic.DefaultPrefix)
	o.Prefix, o.Loading = selfupgrade.CopyName(prefix, u.Run), true
	to, err := elastic.Open(ctx, o)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	id, err := migrate.ID(ctx, from)
	if err != nil {
		return "", err
	}
	// Servers refuse to open a copy that is not whole.
	state := store.Migration{Source: id, From: selfupgrade.CopiedFrom(prefix, m.version, u.To), StartedAt: time.Now().UTC()}
	if err := to.SetMigration(ctx, state); err != nil {
		return "", err
	}
	if _, err := migrate.Copy(ctx, from, to, func(migrate.Step) {}); err != nil {
		return "", err
	}
	state.FinishedAt = new(time.Now().UTC())
	return "the indices " + o.Prefix + "*", to.SetMigration(ctx, state)
}

// Migrate implements selfupgrade.Machine.
func (m *upgradeMachine) Migrate(ctx context.Context, u fleet.ServerUpgrade) error {
	l, err := ownLayout()
	if err != nil {
		return err
	}
	if l == nil {
		return selfupgrade.NoMachine{}.Check(ctx, u.To)
	}
	schema, err := m.schemaOf(ctx, l, u.To)
	if err != nil || schema == m.schema() {
		return err
	}
	es := m.config.Store.Elasticsearch
	if es == nil { // it belongs to one process
		m.mu.Lock()
		err := m.close()
		m.mu.Unlock()
		if err != nil {
			return err
		}
	}
	switch {
	case schema > m.schema():
		return m.migrateBy(ctx, l.Program(u.To))
	case es == nil:
		return sqlite.Downgrade(ctx, filepath.Join(m.config.Data, storeFile), schema)
	}
	o, err := elasticOptions(es)
	if err != nil {
		return err
	}
	return elastic.Downgrade(ctx, o, schema)
}

// migrateBy has another program bring the schema to its own, with this server's
// configuration.
func (m *upgradeMachine) migrateBy(ctx context.Context, program string) error {
	args := []string{"server", "schema", "--migrate", "--data", m.config.Data}
	if m.config.File != "" {
		args = append(args, "--config", m.config.File)
	}
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Switch implements selfupgrade.Machine.
func (m *upgradeMachine) Switch(ctx context.Context, to string) error {
	l, err := ownLayout()
	if err != nil {
		return err
	}
	if l == nil {
		return selfupgrade.NoMachine{}.Check(ctx, to)
	}
	return l.Move(ctx, to)
}
