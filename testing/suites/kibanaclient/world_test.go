package kibanaclient

import (
	"cmp"
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elastic/elastic-agent-libs/kibana"
	"github.com/elastic/elastic-agent-libs/transport/httpcommon"
	"github.com/elastic/elastic-agent-libs/transport/tlscommon"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// waitLimit bounds every wait: ten times what a step takes on an idle machine.
const waitLimit = 60 * time.Second

// shared is a server with its agents, which all tests share.
var shared struct {
	*harness.Fleet
	server *harness.Server
	hosts  []*harness.Host
	// id and secret are the admin key.
	id, secret string
}

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "mkib-")
	if err != nil {
		panic(err)
	}
	code := 1
	if err := start(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	stop()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// start starts a server with the packages 1.0.0 and 1.1.0, a host for each client, which
// the client unenrols, and one that stays.
func start(ctx context.Context, dir string) error {
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		return err
	}
	programs, err := toolchain.ProgramsForTests(ctx, root, filepath.Join(dir, "bin"))
	if err != nil {
		return err
	}
	shared.Fleet = &harness.Fleet{Dir: dir, Programs: programs}
	publisher := shared.NewPublisher("publisher")
	if shared.server, err = shared.StartServer(ctx); err != nil {
		return err
	}
	var archives []string
	for _, version := range []string{"1.0.0", "1.1.0"} {
		archive, err := publisher.Package(ctx, version, programs.Agent)
		if err != nil {
			return err
		}
		archives = append(archives, archive)
	}
	if err := shared.server.Publish(ctx, publisher, archives...); err != nil {
		return err
	}
	key, err := base64.StdEncoding.DecodeString(shared.server.Info.AdminKey)
	if err != nil {
		return err
	}
	shared.id, shared.secret, _ = strings.Cut(string(key), ":")
	for _, name := range slices.Concat(slices.Sorted(maps.Keys(clients)), []string{"stays"}) {
		h, err := shared.Install(ctx, shared.server, publisher, archives[0], name, harness.HostOptions{})
		if err != nil {
			return err
		}
		shared.hosts = append(shared.hosts, h)
		if err := h.Start(); err != nil {
			return err
		}
	}
	return waitOnline(ctx)
}

// waitOnline waits until all hosts are online, and stores their ids.
func waitOnline(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	for {
		agents, err := shared.server.Agents(ctx)
		online := 0
		for _, a := range agents {
			for _, h := range shared.hosts {
				if harness.Hostname(a) == h.Name && a.Status == fleet.StatusOnline {
					h.ID = a.Id
					online++
				}
			}
		}
		if err == nil && online == len(shared.hosts) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d hosts are online: %w", online, len(shared.hosts), cmp.Or(err, ctx.Err()))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func stop() {
	for _, h := range shared.hosts {
		if err := h.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if shared.server != nil {
		if err := shared.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// clients are the ways in which a client names itself and its space.
var clients = map[string]func(*kibana.ClientConfig){
	"apikey": func(c *kibana.ClientConfig) { c.APIKey = shared.id + ":" + shared.secret },
	"basic":  func(c *kibana.ClientConfig) { c.Username, c.Password = shared.id, shared.secret },
	"space": func(c *kibana.ClientConfig) {
		c.APIKey, c.SpaceID = shared.id+":"+shared.secret, "default"
	},
}

// config returns the client's default configuration for the server, without a credential.
func config() kibana.ClientConfig {
	c := kibana.DefaultClientConfig()
	c.Protocol, c.Host = "https", strings.TrimPrefix(shared.server.Info.AdminURL, "https://")
	c.Transport = httpcommon.DefaultHTTPTransportSettings()
	c.Transport.TLS = &tlscommon.Config{CAs: []string{caFile()}}
	return c
}

func caFile() string { return filepath.Join(shared.server.Data, "tls", "ca.crt") }
