package adbcconn

import (
	"errors"

	"github.com/apache/arrow-adbc/go/adbc"

	"github.com/flightpool/flightpool/backend"
)

// setIngest makes stmt an ingestion. Options that are not set are left to the
// driver's defaults. It makes no RPC; the error is the caller's fault.
func setIngest(stmt adbc.Statement, opts backend.IngestOptions) error {
	if opts.Table == "" {
		return errors.New("no table")
	}
	modes := map[backend.IngestMode]string{
		backend.IngestCreateAppend: adbc.OptionValueIngestModeCreateAppend,
		backend.IngestCreate:       adbc.OptionValueIngestModeCreate,
		backend.IngestAppend:       adbc.OptionValueIngestModeAppend,
		backend.IngestReplace:      adbc.OptionValueIngestModeReplace,
	}
	mode, ok := modes[opts.Mode]
	if !ok {
		return errors.New("the ingest mode does not exist")
	}
	set := [][2]string{{adbc.OptionKeyIngestTargetTable, opts.Table}, {adbc.OptionKeyIngestMode, mode}}
	if opts.Catalog != "" {
		set = append(set, [2]string{adbc.OptionValueIngestTargetCatalog, opts.Catalog})
	}
	if opts.Schema != "" {
		set = append(set, [2]string{adbc.OptionValueIngestTargetDBSchema, opts.Schema})
	}
	if opts.Temporary {
		set = append(set, [2]string{adbc.OptionValueIngestTemporary, adbc.OptionValueEnabled})
	}
	for _, option := range set {
		if err := stmt.SetOption(option[0], option[1]); err != nil {
			return err
		}
	}
	return nil
}
