//go:build duckdb_arrow

package duckdb

/*
#include <stdint.h>
#include <stdlib.h>

void flightpoolLiveBind(void *info);
void flightpoolLiveInit(void *info);
void flightpoolLiveScan(void *info, void *output);
void flightpoolLiveFree(void *data);
*/
import "C"

import (
	"errors"
	"runtime/cgo"
	"unsafe"

	capi "github.com/duckdb/duckdb-go-bindings"
)

// DuckDB calls a table function in three steps: bind tells the columns when a
// statement is prepared, init makes the rows when it is run, and scan hands them
// over. What Go keeps between the steps lies behind handles in C memory, which
// DuckDB gives back to free.

func (l *live) register(conn capi.Connection, name string) error {
	f := capi.CreateTableFunction()
	defer capi.DestroyTableFunction(&f)
	capi.TableFunctionSetName(f, name)
	capi.TableFunctionSetExtraInfo(f, keep(l), unsafe.Pointer(C.flightpoolLiveFree))
	capi.TableFunctionSetBind(f, unsafe.Pointer(C.flightpoolLiveBind))
	capi.TableFunctionSetInit(f, unsafe.Pointer(C.flightpoolLiveInit))
	capi.TableFunctionSetFunction(f, unsafe.Pointer(C.flightpoolLiveScan))
	if capi.RegisterTableFunction(conn, f) == capi.StateError {
		return errors.New("duckdb: Live: the name is taken: " + name)
	}
	return nil
}

// freed is what cleans up after itself when DuckDB lets go of it.
type freed interface{ free() }

func (l *live) free()    { destroyTypes(l.types) }
func (r *reading) free() { destroyChunks(r.chunks) }

// keep puts v where DuckDB can hold it.
func keep(v freed) unsafe.Pointer {
	p := C.malloc(C.sizeof_uintptr_t)
	*(*cgo.Handle)(p) = cgo.NewHandle(v)
	return p
}

func kept[T freed](p unsafe.Pointer) T { return (*(*cgo.Handle)(p)).Value().(T) }

//export flightpoolLiveFree
func flightpoolLiveFree(p unsafe.Pointer) {
	h := *(*cgo.Handle)(p)
	h.Value().(freed).free()
	h.Delete()
	C.free(p)
}

//export flightpoolLiveBind
func flightpoolLiveBind(p unsafe.Pointer) {
	info := capi.BindInfo{Ptr: p}
	l := kept[*live](capi.BindGetExtraInfo(info))
	for i, f := range l.schema.Fields() {
		capi.BindAddResultColumn(info, f.Name, l.types[i])
	}
}

//export flightpoolLiveInit
func flightpoolLiveInit(p unsafe.Pointer) {
	info := capi.InitInfo{Ptr: p}
	r, err := kept[*live](capi.InitGetExtraInfo(info)).read()
	if err != nil {
		capi.InitSetError(info, err.Error())
		return
	}
	capi.InitSetInitData(info, keep(r), unsafe.Pointer(C.flightpoolLiveFree))
}

//export flightpoolLiveScan
func flightpoolLiveScan(p, output unsafe.Pointer) {
	r := kept[*reading](capi.FunctionGetInitData(capi.FunctionInfo{Ptr: p}))
	r.fill(capi.DataChunk{Ptr: output})
}
