package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/app"
)

func TestStoreConfigurationErrorNamesTheKey(t *testing.T) {
	for name, c := range map[string]struct {
		config app.ElasticsearchConfig
		want   string
	}{
		"no host":            {app.ElasticsearchConfig{}, "store.elasticsearch.hosts: is empty"},
		"a secret twice":     {app.ElasticsearchConfig{Hosts: []string{"http://es:9200"}, Password: "x", PasswordFile: "y"}, "store.elasticsearch.password: is in"},
		"half a certificate": {app.ElasticsearchConfig{Hosts: []string{"http://es:9200"}, Key: "x"}, "store.elasticsearch.certificate: goes together"},
	} {
		config := app.Defaults()
		config.Store.Elasticsearch = &c.config
		if err := config.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestSecretsComeFromConfigurationFileOrEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("MUSTER_ELASTICSEARCH_SERVICE_TOKEN", "from the environment")
	t.Setenv("MUSTER_ELASTICSEARCH_API_KEY", "not asked for")
	c := app.ElasticsearchConfig{Password: "written down", APIKeyFile: file}
	password, key, token, err := c.Secrets()
	if err != nil || password != "written down" || key != "from a file" || token != "from the environment" {
		t.Errorf("secrets are %q, %q, %q, %v", password, key, token, err)
	}
	c.APIKeyFile = file + ".gone"
	if _, _, _, err := c.Secrets(); err == nil || !strings.Contains(err.Error(), "store.elasticsearch.api_key_file") {
		t.Errorf("a file that is not there: %v", err)
	}
}
