package gitops

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// waitLimit bounds every wait: ten times what a step takes on an idle machine.
const waitLimit = 60 * time.Second

// world is a server with an agent of version 1.0.0, and a package of 1.1.0, which all tests share.
var world struct {
	*harness.Fleet
	server *harness.Server
	host   *harness.Host
}

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "mgitops-")
	if err != nil {
		panic(err)
	}
	code := 1
	if err := start(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = m.Run()
	}
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

func start(ctx context.Context, dir string) error {
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		return err
	}
	programs, err := toolchain.ProgramsForTests(ctx, root, filepath.Join(dir, "bin"))
	if err != nil {
		return err
	}
	world.Fleet = &harness.Fleet{Dir: dir, Programs: programs}
	publisher := world.NewPublisher("publisher")
	if world.server, err = world.StartServer(ctx); err != nil {
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
	if err := world.server.Publish(ctx, publisher, archives...); err != nil {
		return err
	}
	if world.host, err = world.Install(ctx, world.server, publisher, archives[0], "web-01", harness.HostOptions{}); err != nil {
		return err
	}
	if err := world.host.Start(); err != nil {
		return err
	}
	return waitOnline(ctx)
}

func waitOnline(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	for {
		agents, err := world.server.Agents(ctx)
		if err == nil && len(agents) == 1 && agents[0].Status == fleet.StatusOnline {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the host is not online: agents %v: %w", agents, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func stop() error {
	if world.host != nil {
		if err := world.host.Stop(); err != nil {
			return err
		}
	}
	if world.server != nil {
		return world.server.Stop()
	}
	return nil
}

// caFile is the certificate of the authority that signs a server's certificates.
func caFile(s *harness.Server) string { return filepath.Join(s.Data, "tls", "ca.crt") }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until ok returns an empty text. Otherwise the text says what is missing.
func eventually(t *testing.T, what string, ok func(ctx context.Context) string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	for {
		missing := ok(ctx)
		if missing == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("timed out waiting until %s: %s", what, missing)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// fleetObject returns an object of the server, nil if it has none of that name.
func fleetObject(t *testing.T, name string) *spec.Fleet {
	t.Helper()
	resp, err := world.server.Do(t.Context(), http.MethodGet, "/api/v1/fleets/"+name, nil)
	check(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	check(t, err)
	switch resp.StatusCode {
	case http.StatusNotFound:
		return nil
	case http.StatusOK:
	default:
		t.Fatalf("GET /api/v1/fleets/%s: %s: %s", name, resp.Status, body)
	}
	var f spec.Fleet
	if err := json.Unmarshal(body, &f); err != nil {
		t.Fatalf("GET /api/v1/fleets/%s: %v: %s", name, err, body)
	}
	return &f
}

// rollouts returns the ids of all rollouts, newest first.
func rollouts(t *testing.T) []string {
	t.Helper()
	list, err := harness.Get[adminapi.RolloutList](t.Context(), world.server, "/api/v1/rollouts?perPage=100")
	check(t, err)
	var ids []string
	for _, r := range list.Items {
		ids = append(ids, r.ID)
	}
	return ids
}
