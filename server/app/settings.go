package app

import (
	"fmt"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

// Origin is where the value of a key comes from, if it is not the default.
type Origin string

// Values of Origin.
const (
	FromFile        Origin = "file"
	FromEnvironment Origin = "environment"
	FromFlag        Origin = "flag"
)

// Override records that a flag has set a key.
func (c *Config) Override(key string) {
	if c.Origins == nil {
		c.Origins = map[string]Origin{}
	}
	c.Origins[key] = FromFlag
}

// keysIn returns the keys of a YAML document that have values, as paths with dots.
func keysIn(data []byte) (map[string]Origin, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	keys := map[string]Origin{}
	var walk func(prefix string, n *yaml.Node)
	walk = func(prefix string, n *yaml.Node) {
		if n.Kind != yaml.MappingNode {
			keys[strings.TrimSuffix(prefix, ".")] = FromFile
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			walk(prefix+n.Content[i].Value+".", n.Content[i+1])
		}
	}
	if len(doc.Content) > 0 && doc.Content[0].Kind == yaml.MappingNode {
		walk("", doc.Content[0])
	}
	return keys, nil
}

// secretKeys are the keys whose values are not shown.
var secretKeys = map[string]bool{"store.elasticsearch.password": true, "store.elasticsearch.api_key": true, "store.elasticsearch.service_token": true}

// hidden stands for a secret that is set.
const hidden = "hidden"

// Settings returns the settings in force, in the order of the configuration file, without
// secrets. effective has the values of keys that are empty in the configuration because the
// server derives them.
func (c Config) Settings(effective map[string]string) []adminapi.Setting {
	described := descriptions(Example)
	out := []adminapi.Setting{}
	add := func(key, value string) {
		origin := c.Origins[key]
		if key == rolloutDefaults && value != "" { // the keys are those below it
			origin = FromFile
		}
		if value == "" && secretKeys[key] && os.Getenv(environmentOf(key)) != "" && c.Origins[key+"_file"] == "" {
			value, origin = hidden, FromEnvironment
		}
		if origin == "" {
			origin = Origin(adminapi.OriginDefault)
		}
		if (value == "" || value == "0") && effective[key] != "" {
			value = effective[key]
		}
		out = append(out, adminapi.Setting{Key: key, Value: value, Origin: adminapi.SettingOrigin(origin), Description: described[key]})
	}
	eachKey("", reflect.ValueOf(c), func(key string, v reflect.Value) {
		value := settingText(v)
		if value != "" && secretKeys[key] {
			value = hidden
		}
		add(key, value)
	})
	return out
}

// environmentOf returns the variable that has a secret; see ElasticsearchConfig.Secrets.
func environmentOf(key string) string {
	return "MUSTER_ELASTICSEARCH_" + strings.ToUpper(key[strings.LastIndexByte(key, '.')+1:])
}

// eachKey calls f for every key of a configuration with its value. A section that is not
// configured is one key without a value.
func eachKey(prefix string, v reflect.Value, f func(key string, v reflect.Value)) {
	for i := range v.NumField() {
		name := v.Type().Field(i).Tag.Get("yaml")
		if name == "-" {
			continue
		}
		field := v.Field(i)
		if field.Kind() == reflect.Pointer && !field.IsNil() {
			field = field.Elem()
		}
		if _, one := field.Interface().(RolloutDefaults); !one && field.Kind() == reflect.Struct {
			eachKey(prefix+name+".", field, f)
			continue
		}
		f(prefix+name, field)
	}
}

// settingText writes a value as in a configuration file.
func settingText(v reflect.Value) string {
	switch value := v.Interface().(type) {
	case time.Duration:
		return shortDuration(value)
	case []string:
		shown := make([]string, len(value))
		for i, s := range value {
			shown[i] = withoutPassword(s)
		}
		return strings.Join(shown, ", ")
	case RolloutDefaults:
		return value.String()
	case fmt.Stringer:
		return strings.ToLower(value.String()) // the level of the log
	}
	if v.Kind() == reflect.Pointer {
		return ""
	}
	return fmt.Sprint(v.Interface())
}

// shortDuration writes 5m0s as 5m.
func shortDuration(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// withoutPassword hides the password of a URL.
func withoutPassword(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.User == nil {
		return text
	}
	return u.Redacted()
}

var (
	// exampleKey matches a line of Example with a key, which may be commented out, and its
	// comment.
	exampleKey = regexp.MustCompile(`^(#? ?)( *)(?:# )?([a-z_]+):(?:\s+[^#]*?)?\s*(?:#\s+(.*))?$`)
	// exampleMore matches a line that continues a comment.
	exampleMore = regexp.MustCompile(`^ {20,}# (.*)$`)
)

// more are descriptions of keys that Example names only in the comment of another.
var more = map[string]string{
	"store.elasticsearch.prefix":             "how the names of the indices begin; without it, muster-",
	"store.elasticsearch.username":           "user of Elasticsearch, with password or password_file",
	"store.elasticsearch.password":           "password of username",
	"store.elasticsearch.api_key":            "in place of username and password",
	"store.elasticsearch.api_key_file":       "file with the api_key",
	"store.elasticsearch.service_token":      "in place of username and password",
	"store.elasticsearch.service_token_file": "file with the service_token",
	"store.elasticsearch.password_file":      "file with the password of username",
	"store.elasticsearch.ca":                 "PEM file of the authority that has signed Elasticsearch's certificate",
	"store.elasticsearch.ca_fingerprint":     "SHA-256 of the authority's certificate, in place of ca",
	"store.elasticsearch.hosts":              "addresses of Elasticsearch's nodes",
	"store.elasticsearch.key":                "key of the client certificate",
	"admin.url":                              "the address of the admin API and the web UI; without it, made from the host's name",
	"tls.key":                                "key of the certificate",
	"tls.certificate":                        "your own chain instead of the server's CA; agents pin its last certificate. When the files are replaced, both listeners serve the new certificate within a second",
}

// descriptions returns the comments of the keys in Example.
func descriptions(example string) map[string]string {
	out := map[string]string{}
	var path []string // of the current line, by level
	last := ""
	for line := range strings.Lines(example) {
		line = strings.TrimRight(line, "\n")
		if m := exampleMore.FindStringSubmatch(line); m != nil {
			if last != "" {
				out[last] = strings.TrimSpace(out[last] + " " + m[1])
			}
			continue
		}
		m := exampleKey.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		level := len(m[2]) / 2
		if m[1] == " " { // the first space of the indentation of a key that is not commented out
			level = (len(m[2]) + 1) / 2
		}
		path = append(path[:min(level, len(path))], m[3])
		last = strings.Join(path, ".")
		out[last] = m[4]
	}
	for key, text := range more {
		out[key] = text
	}
	return out
}
