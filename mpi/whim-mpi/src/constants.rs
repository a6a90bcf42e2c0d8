//! Constants of the MPI's header. Some are addresses, which are known where the program runs.

use mpi_sys as c;
use std::ffi::c_int;

macro_rules! constants {
    ($($name:ident: $type:ty = $constant:ident;)*) => {
        $(pub fn $name() -> $type {
            // JUSTIFICATION: a constant of C.
            // SAFETY: nobody writes to it.
            unsafe { c::$constant }
        })*
    };
}

constants! {
    comm_world: c::MPI_Comm = RSMPI_COMM_WORLD;
    comm_self: c::MPI_Comm = RSMPI_COMM_SELF;
    comm_null: c::MPI_Comm = RSMPI_COMM_NULL;
    byte: c::MPI_Datatype = RSMPI_UINT8_T;
    number: c::MPI_Datatype = RSMPI_UINT64_T;
    double: c::MPI_Datatype = RSMPI_DOUBLE;
    datatype_null: c::MPI_Datatype = RSMPI_DATATYPE_NULL;
    request_null: c::MPI_Request = RSMPI_REQUEST_NULL;
    message_null: c::MPI_Message = RSMPI_MESSAGE_NULL;
    file_null: c::MPI_File = RSMPI_FILE_NULL;
    info_null: c::MPI_Info = RSMPI_INFO_NULL;
    errors_return: c::MPI_Errhandler = RSMPI_ERRORS_RETURN;
    no_status: *mut c::MPI_Status = RSMPI_STATUS_IGNORE;
    minimum: c::MPI_Op = RSMPI_MIN;
    maximum: c::MPI_Op = RSMPI_MAX;
    sum: c::MPI_Op = RSMPI_SUM;
    any_source: c_int = RSMPI_ANY_SOURCE;
    any_tag: c_int = RSMPI_ANY_TAG;
    funneled: c_int = RSMPI_THREAD_FUNNELED;
}
