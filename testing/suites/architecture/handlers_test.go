package architecture

import (
	"path"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/admin"
)

// reachesStore matches a use of the stores that services have in exported fields, as in
// h.Artifacts.Store, and returns how many such fields there are.
func reachesStore() (pattern *regexp.Regexp, n int) {
	var fields []string
	for service := range reflect.TypeFor[admin.Handlers]().Fields() {
		of := service.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || !service.IsExported() {
			continue
		}
		for f := range of.Fields() {
			if f.IsExported() && strings.HasSuffix(f.Type.PkgPath(), "/server/store") {
				fields = append(fields, service.Name+`\.`+f.Name)
			}
		}
	}
	return regexp.MustCompile(`\.(` + strings.Join(fields, "|") + `)\b`), len(fields)
}

// The handlers of the admin API do not import the store (see bans), and do not reach it through a
// service.
func TestHandlersDoNotReachTheStore(t *testing.T) {
	pattern, n := reachesStore()
	if use := "keys, _, err := h.Artifacts.Store.PublisherKeys().List(ctx, 0, 0)"; n < 5 || !pattern.MatchString(use) {
		t.Fatalf("%d fields of services are stores, and %s matches %t: this test no longer finds them", n, use, pattern.MatchString(use))
	}
	tr := openTree(t)
	for _, name := range tr.with(".go") {
		if path.Dir(name) != "server/api/admin" || strings.HasSuffix(name, "_test.go") {
			continue
		}
		if use := pattern.Find(tr.read(name)); use != nil {
			t.Errorf("%s uses %s: call a function of the service, which reads the store", name, use)
		}
	}
}
