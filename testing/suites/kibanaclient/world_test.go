package kibanaclient

import (
	"encoding/base64"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elastic/elastic-agent-libs/kibana"
	"github.com/elastic/elastic-agent-libs/transport/httpcommon"
	"github.com/elastic/elastic-agent-libs/transport/tlscommon"

	"github.com/muster-fleet/muster/testing/kit/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.With(m).Run()) }

// server is a server with the packages 1.0.0 and 1.1.0, a host for each client, which the client
// unenrols, and one that stays. All tests share it.
type server struct {
	*harness.World
	// id and secret are the admin key.
	id, secret string
}

func shared(t *testing.T) server {
	t.Helper()
	w := harness.SharedWorld(t, func(w *harness.World) {
		w.Publish("1.1.0", w.Programs.Agent)
		w.AddHosts("1.0.0", harness.HostOptions{}, slices.Concat(slices.Sorted(maps.Keys(clients)), []string{"stays"})...)
	})
	key, err := base64.StdEncoding.DecodeString(w.Server.Info.AdminKey)
	w.Check(err)
	id, secret, _ := strings.Cut(string(key), ":")
	return server{w, id, secret}
}

// clients are the ways in which a client names itself and its space.
var clients = map[string]func(s server, c *kibana.ClientConfig){
	"apikey": func(s server, c *kibana.ClientConfig) { c.APIKey = s.id + ":" + s.secret },
	"basic":  func(s server, c *kibana.ClientConfig) { c.Username, c.Password = s.id, s.secret },
	"space": func(s server, c *kibana.ClientConfig) {
		c.APIKey, c.SpaceID = s.id+":"+s.secret, "default"
	},
}

// config returns the client's default configuration for the server, without a credential.
func (s server) config() kibana.ClientConfig {
	c := kibana.DefaultClientConfig()
	c.Protocol, c.Host = "https", strings.TrimPrefix(s.Server.Info.AdminURL, "https://")
	c.Transport = httpcommon.DefaultHTTPTransportSettings()
	c.Transport.TLS = &tlscommon.Config{CAs: []string{s.caFile()}}
	return c
}

func (s server) caFile() string { return filepath.Join(s.Server.Data, "tls", "ca.crt") }
