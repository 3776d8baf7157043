package webhook

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
)

// headers makes a header of pairs.
func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// Rule: the examples of the specification are read in each mode
// (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md and
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md).
func TestCloudEventsOfTheSpecification(t *testing.T) {
	at := time.Date(2018, 4, 5, 17, 31, 0, 0, time.UTC)
	for name, x := range map[string]struct {
		header http.Header
		body   string
		want   []belay.CloudEvent
	}{
		"binary": {
			headers("ce-specversion", "1.0", "ce-type", "com.example.someevent", "ce-time", "2018-04-05T17:31:00Z",
				"ce-id", "1234-1234-1234", "ce-source", "/mycontext/subcontext", "Content-Type",
				"application/json; charset=utf-8"),
			`{ "a": 1 }`,
			[]belay.CloudEvent{{
				ID: "1234-1234-1234", Source: "/mycontext/subcontext", Type: "com.example.someevent", Time: at,
				DataContentType: "application/json", Data: json.RawMessage(`{"a":1}`),
			}},
		},
		"binary, encoded": {
			headers("ce-specversion", "1.0", "ce-type", "t", "ce-id", "1", "ce-source", "/s", "ce-subject",
				"Euro%20%E2%82%AC", "Content-Type", "text/plain"), "hello",
			[]belay.CloudEvent{{
				ID: "1", Source: "/s", Type: "t", Subject: "Euro €", DataContentType: "text/plain", Data: json.RawMessage(`"hello"`),
			}},
		},
		"structured, with a text": {
			headers("Content-Type", "application/cloudevents+json; charset=UTF-8"),
			`{"specversion": "1.0", "type": "com.example.someevent", "source": "/mycontext", "subject": null, "id": "C234",
				"time": "2018-04-05T17:31:00Z", "comexampleextension1": "value", "comexampleothervalue": 5, "flag": true,
				"datacontenttype": "application/xml", "data": "<much wow=\"xml\"/>"}`,
			[]belay.CloudEvent{{
				ID: "C234", Source: "/mycontext", Type: "com.example.someevent", Time: at,
				DataContentType: "application/xml", Extensions: map[string]string{
					"comexampleextension1": "value", "comexampleothervalue": "5", "flag": "true",
				},
				Data: json.RawMessage(`"<much wow=\"xml\"/>"`),
			}},
		},
		"structured, with bytes": {
			headers("Content-Type", "application/cloudevents+json"),
			`{"specversion": "1.0", "type": "t", "source": "/s", "id": "B", "datacontenttype": "application/vnd.apache.thrift",
				"data_base64": "/w=="}`,
			[]belay.CloudEvent{{
				ID: "B", Source: "/s", Type: "t", DataContentType: "application/vnd.apache.thrift",
				Data: json.RawMessage(`"/w=="`),
			}},
		},
		"structured, without data": {
			headers("Content-Type", "application/cloudevents+json"), `{"specversion":"1.0","type":"t","source":"/s","id":"1"}`,
			[]belay.CloudEvent{{ID: "1", Source: "/s", Type: "t"}},
		},
		"batch": {
			headers("Content-Type", "application/cloudevents-batch+json"),
			`[{"specversion":"1.0","type":"t","source":"/s","id":"1","data":{"n":12345678901234567890}},
				{"specversion":"1.0","type":"u","source":"/s","id":"2","data":[1, 2]}]`,
			[]belay.CloudEvent{
				{ID: "1", Source: "/s", Type: "t", Data: json.RawMessage(`{"n":12345678901234567890}`)},
				{ID: "2", Source: "/s", Type: "u", Data: json.RawMessage(`[1,2]`)},
			},
		},
		"an empty batch": {headers("Content-Type", "application/cloudevents-batch+json"), `[]`, []belay.CloudEvent{}},
	} {
		got, err := CloudEvents(x.header, []byte(x.body))
		if err != nil || !reflect.DeepEqual(got, x.want) {
			t.Errorf("%s: %+v, %v\nwant %+v", name, got, err, x.want)
		}
	}
}

// Rule: what is no CloudEvent is refused with CodeInvalid.
func TestWrongCloudEvents(t *testing.T) {
	structured, batch := headers("Content-Type", structuredType), headers("Content-Type", batchType)
	for name, x := range map[string]struct {
		header http.Header
		body   string
	}{
		"nothing":             {headers(), `{}`},
		"plain JSON":          {headers("Content-Type", "application/json"), `{"id": "1"}`},
		"odd type":            {headers("Content-Type", "/;"), ``},
		"no version":          {structured, `{"type": "t", "source": "/s", "id": "1"}`},
		"old version":         {structured, `{"specversion": "0.3", "type": "t", "source": "/s", "id": "1"}`},
		"no id":               {structured, `{"specversion": "1.0", "type": "t", "source": "/s"}`},
		"empty source":        {structured, `{"specversion": "1.0", "type": "t", "source": "", "id": "1"}`},
		"no type":             {structured, `{"specversion": "1.0", "source": "/s", "id": "1"}`},
		"list":                {structured, `[]`},
		"attribute is a list": {structured, `{"specversion": "1.0", "type": "t", "source": "/s", "id": ["1"]}`},
		"attribute is 1.5":    {structured, `{"specversion": "1.0", "type": "t", "source": "/s", "id": "1", "n": 1.5}`},
		"odd name":            {structured, `{"specversion": "1.0", "type": "t", "source": "/s", "id": "1", "A_b": "x"}`},
		"odd time":            {structured, `{"specversion": "1.0", "type": "t", "source": "/s", "id": "1", "time": "now"}`},
		"two data": {
			structured, `{"specversion": "1.0", "type": "t", "source": "/s", "id": "1", "data": 1, "data_base64": ""}`,
		},
		"no Base64":          {structured, `{"specversion": "1.0", "type": "t", "source": "/s", "id": "1", "data_base64": "%"}`},
		"line break":         {structured, `{"specversion": "1.0", "type": "t", "source": "/s", "id": "1\n"}`},
		"long":               {structured, `{"specversion": "1.0", "type": "t", "source": "/s", "id": "` + strings.Repeat("x", 2000) + `"}`},
		"batch of no events": {batch, `[1]`},
		"batch is an object": {batch, `{}`},
		"large batch":        {batch, `[` + strings.Repeat(`{},`, belay.MaxCloudEvents) + `{}]`},
		"twice": {
			headers("ce-specversion", "1.0", "ce-type", "t", "ce-id", "1", "ce-id", "2", "ce-source", "/s"), ``,
		},
		"odd encoding": {headers("ce-specversion", "1.0", "ce-type", "t", "ce-id", "%zz", "ce-source", "/s"), ``},
		"no JSON": {
			headers("ce-specversion", "1.0", "ce-type", "t", "ce-id", "1", "ce-source", "/s", "Content-Type",
				"application/json"),
			`{`,
		},
	} {
		if got, err := CloudEvents(x.header, []byte(x.body)); belay.CodeOf(err) != belay.CodeInvalid || err == nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// Rule: the id of a delivery depends on the source and the id of the event, and on nothing else.
func TestCloudEventsAreKnownBySourceAndID(t *testing.T) {
	ids := make(map[string]bool)
	for _, e := range []belay.CloudEvent{
		{ID: "1", Source: "/a"}, {ID: "1", Source: "/b"}, {ID: "2", Source: "/a"}, {ID: "1 2", Source: "/a"},
		{ID: strings.Repeat("x", 900), Source: "/a"}, {ID: strings.Repeat("x", 901), Source: "/a"},
		{ID: "ä", Source: "/a"},
	} {
		id := eventID(&e)
		again := belay.CloudEvent{ID: e.ID, Source: e.Source, Type: "other", Data: json.RawMessage(`1`)}
		if ids[id] || eventID(&again) != id || len(id) > 150 || strings.ContainsAny(id, " \n") {
			t.Errorf("%q of %+v", id, e)
		}
		ids[id] = true
	}
}

// FuzzCloudEvents looks for requests that break the reader of CloudEvents, or that it reads as no CloudEvent.
func FuzzCloudEvents(f *testing.F) {
	f.Add("application/cloudevents+json", "1", `{"specversion":"1.0","type":"t","source":"/s","id":"1","data":{"a":1}}`)
	f.Add("application/cloudevents-batch+json", "", `[{"specversion":"1.0","type":"t","source":"/s","id":"1"}]`)
	f.Add("text/plain", "%41", `hello`)
	f.Fuzz(func(t *testing.T, kind, id, body string) {
		h := headers("Content-Type", kind)
		if id != "" {
			h = headers("Content-Type", kind, "Ce-Id", id, "Ce-Source", "/s", "Ce-Type", "t", "Ce-Specversion", "1.0")
		}
		events, err := CloudEvents(h, []byte(body))
		if err != nil {
			return
		}
		for i := range events {
			e := &events[i]
			if e.ID == "" || e.Source == "" || e.Type == "" || len(e.Data) > 0 && !json.Valid(e.Data) {
				t.Errorf("%+v", e)
			}
			if id := eventID(e); len(id) > 150 {
				t.Errorf("the id %q is too long", id)
			}
		}
	})
}
