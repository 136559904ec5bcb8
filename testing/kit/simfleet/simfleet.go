// Package simfleet runs a real server with a simulated fleet: hosts that enrolled long ago and
// have a history, of which some are agents that speak the protocol, and rollouts, incidents and
// the rest of what a page can show. `go tool mage fleet` runs it for people who work on the
// console, and testing/suites/console runs Playwright against it.
package simfleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
)

// Options configure a fleet. The zero value of each has a default.
type Options struct {
	// Hosts is how many hosts there are (300), and Live how many of them are agents that speak
	// the protocol (60). The others only look alive.
	Hosts, Live int
	// Dir is the folder of everything; it must be empty or absent. Empty: a temporary one,
	// which Stop removes.
	Dir string
	// Listen is the address of the admin API and the UI: 127.0.0.1 and a free port.
	Listen string
	// Seed decides everything that is random.
	Seed uint64
	// Pace multiplies the durations of upgrades on hosts; 1 is believable.
	Pace float64
	// Unattended means that nobody gives an order after the start. In a large fleet what people do
	// reads all hosts, again and again.
	Unattended bool
	// Out is where the progress is reported; nil: nowhere.
	Out io.Writer
}

func (o *Options) setDefaults() {
	if o.Hosts == 0 {
		o.Hosts = 300
	}
	if o.Live == 0 {
		o.Live = 60
	}
	o.Live = min(o.Live, o.Hosts)
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Pace == 0 {
		o.Pace = 1
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
}

// Fleet is a running fleet.
type Fleet struct {
	app.Info
	// AdminKey is the key of the first administrator, and LoginURL opens the UI with it.
	AdminKey string
	LoginURL string

	options   Options
	hosts     []*host
	agents    []*agent // of the live hosts
	group     string   // the id of the group of rollouts
	store     store.Store
	publisher *publisher
	client    *http.Client
	tls       *tls.Config
	keys      map[string]string // of people, by their names
	began     time.Time
	ownDir    bool
	stop      context.CancelFunc
	running   sync.WaitGroup
	ended     error // of the server
}

// Start starts a fleet, which runs until Stop is called.
func Start(ctx context.Context, o Options) (*Fleet, error) {
	o.setDefaults()
	f := &Fleet{options: o, keys: map[string]string{}, began: time.Now(), ownDir: o.Dir == "", stop: func() {}}
	err := f.start(ctx)
	if err != nil {
		return nil, errors.Join(err, f.Stop())
	}
	return f, nil
}

func (f *Fleet) start(ctx context.Context) error {
	o := &f.options
	var err error
	if f.ownDir {
		o.Dir, err = os.MkdirTemp("", "muster-fleet-")
	} else {
		err = os.MkdirAll(o.Dir, 0o755)
	}
	if err != nil {
		return err
	}
	if f.publisher, err = newPublisher(o.Dir, o.Seed); err != nil {
		return err
	}
	if f.store, err = sqlite.Open(ctx, filepath.Join(o.Dir, "muster.db"), sqlite.Options{}); err != nil {
		return err
	}
	now := time.Now().UTC()
	f.hosts = newHosts(*o)
	if err := newPast(*o, f.hosts, now).write(ctx, f.store); err != nil {
		return err
	}
	f.say("%d hosts have a past", len(f.hosts))
	if err := f.serve(ctx); err != nil {
		return err
	}
	f.say("the server answers at %s", f.AdminURL)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	end := f.stop
	f.stop = func() { stop(); end() }
	if err := f.prepare(ctx); err != nil {
		return err
	}
	f.running.Go(func() { f.beat(running) })
	f.runAgents(running)
	f.say("%d agents check in", o.Live)
	if err := f.play(ctx); err != nil {
		return err
	}
	f.running.Go(func() { f.stir(running) })
	if !o.Unattended {
		f.running.Go(func() { f.look(running) })
	}
	return nil
}

// serve starts the server.
func (f *Fleet) serve(ctx context.Context) error {
	log, err := os.Create(filepath.Join(f.options.Dir, "server.log"))
	if err != nil {
		return err
	}
	o := app.Options{Config: app.Defaults(), Store: f.store, Version: current, NewStore: true, Log: slog.New(slog.NewTextHandler(log, nil))}
	o.Config.Data = f.options.Dir
	o.Config.Agents.Listen, o.Config.Admin.Listen = "127.0.0.1:0", f.options.Listen
	o.Config.Limits.HandshakesPerSecond = 10_000 // not measured, so that the start takes less time
	// The fleet is made at once, with one token.
	o.Config.Limits.EnrollmentsPerSecond, o.Config.Limits.EnrollmentsPerHour = 10_000, 1_000_000
	srv, err := app.New(ctx, o)
	if err != nil {
		return errors.Join(err, log.Close())
	}
	f.Info = srv.Info()
	admin, _, _, err := srv.FirstKeys(ctx)
	if err != nil {
		return err
	}
	f.AdminKey = admin.Encode()
	f.LoginURL = f.AdminURL + "/login#key=" + f.AdminKey
	if err := os.WriteFile(filepath.Join(f.options.Dir, "admin.key"), []byte(f.AdminKey+"\n"), 0o600); err != nil {
		return err
	}
	u, err := url.Parse(f.AdminURL)
	if err != nil {
		return err
	}
	if f.tls, err = capin.TLSConfig(f.CAPin, u.Hostname()); err != nil {
		return err
	}
	f.client = &http.Client{Transport: &http.Transport{TLSClientConfig: f.tls, ForceAttemptHTTP2: true}, Timeout: time.Minute}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	f.stop = stop
	f.running.Go(func() {
		f.ended = errors.Join(srv.Run(running), log.Close())
	})
	return nil
}

// Stop stops agents and server. It removes the folder if Options named none.
func (f *Fleet) Stop() error {
	f.stop()
	f.running.Wait()
	err := f.ended
	if f.store != nil {
		err = errors.Join(err, f.store.Close())
	}
	if f.ownDir && f.options.Dir != "" {
		err = errors.Join(err, os.RemoveAll(f.options.Dir))
	}
	return err
}

func (f *Fleet) say(format string, args ...any) {
	fmt.Fprintf(f.options.Out, "%6.1f s  %s\n", time.Since(f.began).Seconds(), fmt.Sprintf(format, args...))
}

// Run runs a fleet until ctx ends, as `go tool mage fleet` does.
func Run(ctx context.Context, o Options) error {
	f, err := Start(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out, `
Open the web UI (it has a certificate of its own: your browser asks once):

  %s

Or work on it with Vite:

  cd ui && MUSTER_SERVER=%s npm run dev
  http://localhost:5173/login#key=%s

On the command line:
  export MUSTER_URL=%s MUSTER_CA_PIN=%s
  export MUSTER_API_KEY=%s

Ctrl-C stops everything.

`, f.LoginURL, f.AdminURL, f.AdminKey, f.AdminURL, f.CAPin, f.AdminKey)
	<-ctx.Done()
	return f.Stop()
}
