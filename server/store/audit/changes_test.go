package audit_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/audit"
)

// fill sets each value below v to one of its own, which is longer than the name of any field.
func fill(v reflect.Value, at string) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), at)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(noon))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), at+"."+v.Type().Field(i).Name)
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes(fmt.Appendf(nil, `{"of_a_host":"secret:%s"}`, at))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), at)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		key.SetString("any")
		fill(value, at)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Interface:
		v.Set(reflect.ValueOf("secret:" + at))
	case reflect.String:
		v.SetString("secret:" + at)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8:
		v.SetUint(7)
	case reflect.Float64:
		v.SetFloat(7)
	default:
		panic("fill: " + at + " is a " + v.Kind().String())
	}
}

// texts returns the texts of an object of which the audit trail shows a value.
func texts[T any](t *testing.T) string {
	var before, after T
	fill(reflect.ValueOf(&after).Elem(), "")
	changes := audit.Changes(before, after)
	for _, c := range changes {
		if c.Hidden && c.Before+c.After != "" {
			t.Errorf("%T: %+v is hidden and shown", after, c)
		}
	}
	back := audit.Changes(after, before)
	if len(back) != len(changes) {
		t.Errorf("%T: setting names %d fields, and clearing %d", after, len(changes), len(back))
	}
	if s, ok := any(&after).(interface{ Secrets() map[string]*string }); ok {
		for path, value := range s.Secrets() {
			if !slices.ContainsFunc(changes, func(c audit.FieldChange) bool { return c.Field == path && c.Hidden }) {
				t.Errorf("%T: %s is not named as changed and hidden", after, path)
			}
			for _, data := range []json.RawMessage{audit.ChangeData(changes), audit.ChangeData(back)} {
				if *value == "" || strings.Contains(string(data), *value) {
					t.Errorf("%T: the value of %s is in %s", after, path, data)
				}
			}
		}
	}
	var shown []string
	for _, c := range changes {
		if strings.Contains(c.After, "secret:") {
			shown = append(shown, c.Field)
		}
	}
	return strings.Join(shown, " ")
}

// A new field is hidden, until somebody decides that it is no secret, here and in package audit.
func TestChangesShowNoSecretOfAnyKind(t *testing.T) {
	for _, c := range []struct{ kind, shown, want string }{
		{"policies", texts[fleet.Policy](t), "agent_features data_output_id description download_source_id fleet_server_host_id monitoring_enabled monitoring_output_id name namespace required_versions upgrade_windows"},
		{"hosts", texts[fleet.FleetServerHost](t), "host_urls name proxy_id ssl.client_auth"},
		{"sources", texts[fleet.DownloadSource](t), "host name proxy_id ssl.verification_mode"},
		{"proxies", texts[fleet.FleetProxy](t), "name url"},
		{"outputs", texts[fleet.Output](t), "auth_type ca_sha256 ca_trusted_fingerprint client_id compression connection_type hosts kibana_url name partition preset proxy_id sasl.mechanism ssl.verification_mode topic type version"},
		{"exposure rules", texts[fleet.ExposureRule](t), "per"},
		{"freezes", texts[fleet.Freeze](t), "name"},
		{"webhooks", texts[fleet.Webhook](t), "events name"},
		{"views", texts[fleet.View](t), "name page search"},
		{"enrollment keys", texts[fleet.EnrollmentKey](t), ""},
		{"admin keys", texts[fleet.AdminKey](t), ""},
		{"publisher keys", texts[fleet.PublisherKey](t), ""},
		{"trust files", texts[fleet.TrustFile](t), ""},
		{"groups", texts[fleet.RolloutGroup](t), ""},
		{"declared fleets", texts[fleet.DeclaredFleet](t), ""},
		{"incidents", texts[fleet.Incident](t), ""},
		{"dead letters", texts[fleet.DeadLetter](t), ""},
		{"uploads", texts[fleet.Upload](t), ""},
		{"packages", texts[fleet.Package](t), ""},
		{"servers", texts[fleet.Server](t), ""},
	} {
		if c.shown != c.want {
			t.Errorf("%s: the trail shows the texts of\n%s\nwant\n%s", c.kind, c.shown, c.want)
		}
	}
}

func TestChangesSayWhatWasAndWhatIs(t *testing.T) {
	was := fleet.Output{
		ID: "o", Name: "one", Type: fleet.OutputElasticsearch, Hosts: []string{"https://a:9200"}, SSL: &fleet.ClientSSL{Key: "k1", VerificationMode: "full"}, Password: "same", Revision: 1,
	}
	is := was
	is.Hosts, is.SSL, is.ConfigYAML, is.Sealed, is.Revision = []string{"https://a:9200", "https://b:9200"}, &fleet.ClientSSL{Key: "k2"}, "password: p", []byte("x"), 2
	got := audit.Changes(was, is)
	want := []audit.FieldChange{
		{Field: "config_yaml", Hidden: true},
		{Field: "hosts", Before: `["https://a:9200"]`, After: `["https://a:9200","https://b:9200"]`},
		{Field: "ssl.key", Hidden: true},
		{Field: "ssl.verification_mode", Before: "full"},
	}
	if !reflect.DeepEqual(got, want) || audit.ChangedNames(got) != "config_yaml, hosts, ssl.key, ssl.verification_mode" {
		t.Errorf("they are %+v", got)
	}
	if got := audit.Changes(was, was); len(got) != 0 || audit.ChangeData(got) != nil {
		t.Errorf("nothing is changed by %+v", got)
	}
	for _, address := range []string{"https://ann:pw@a:9200", "https://a:9200/?token=x"} { // a client may store a secret where none belongs
		is.Hosts = []string{"https://a:9200", address}
		if got := audit.ChangeData(audit.Changes(was, is)); strings.Contains(string(got), address) || !strings.Contains(string(got), `{"field":"hosts","hidden":true}`) {
			t.Errorf("%s is in %s", address, got)
		}
	}
	days := audit.Changes(fleet.Policy{InactivityTimeout: 336 * time.Hour}, fleet.Policy{InactivityTimeout: time.Hour})
	if len(days) != 1 || days[0].Before != "336h0m0s" || days[0].After != "1h0m0s" {
		t.Errorf("the timeout is shown as %+v", days)
	}
}

func TestChangesAreBounded(t *testing.T) {
	long := strings.Repeat("ä\n", 700) // more than any bound
	is := fleet.Policy{Name: long, Description: long, ComponentVariables: map[string]map[string]string{"web": {}}}
	for i := range 5000 {
		is.ComponentVariables["web"][fmt.Sprint(long, i)] = long
	}
	for i := range 1000 {
		is.MonitoringEnabled = append(is.MonitoringEnabled, fmt.Sprint(long, i))
	}
	changes := audit.Changes(fleet.Policy{}, is)
	if n := len(audit.ChangeData(changes)); n > 30<<10 {
		t.Errorf("the entry has %d bytes", n)
	}
	if last := changes[len(changes)-1].Field; last != "… and 4943 more" {
		t.Errorf("at last it says %q", last)
	}
	names := audit.ChangedNames(changes)
	if !strings.HasSuffix(names, ", and others") || len(names) > 1200 {
		t.Errorf("the text has %d bytes: %s", len(names), names)
	}
}

func TestChangesOfHeadersNameThemOnly(t *testing.T) {
	got := audit.Changes(fleet.FleetProxy{Headers: map[string]any{"X-A": "1"}}, fleet.FleetProxy{Headers: map[string]any{"X-A": "1", "Authorization": "Bearer b"}})
	if want := []audit.FieldChange{{Field: "proxy_headers.Authorization", Hidden: true}}; !reflect.DeepEqual(got, want) {
		t.Errorf("they are %+v", got)
	}
}
